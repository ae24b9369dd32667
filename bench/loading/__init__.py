"""
Load on a feed, by the clock, with every consumer checked.

    plan.py         what is asked for, and the schedule: what is due when
    latencies.py    histograms of seconds
    ledger.py       the one order: who hears what, what is missing, what it folds to
    recorder.py     what a run counts, as a whole and by interval
    producing.py    producers that keep to the schedule, however late the answers are
    consuming.py    consumers that come, go and resume
    running.py      one run
    machine.py      the machine, and the memory of processes
    reporting.py    the progress line, the table, JSON
    faults.py       what a soak does to a host
    proxy.py        the way to it, which can be cut
"""
