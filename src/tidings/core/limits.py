"""
Every bound of the feed and its reason.

Sizes are bytes of UTF-8 unless the name says otherwise; times carry their unit.
"""

from __future__ import annotations

# --- what one operation may hold -------------------------------------------------------------
TYPE_BYTES_MAX = 128  # escaped it may triple; with an id it must fit DynamoDB's 1,024 B sort key
ID_BYTES_MAX = 512  # see TYPE_BYTES_MAX: 3 * 128 + 1 + 512 <= 1,024
PARENT_BYTES_MAX = 640  # the type/id of any other object but the very longest
PARENTS_MAX = 64  # each parent is one index look-up when operations are pushed
TAGS_MAX = 32  # far more than anybody uses; each one is stored and sent with its operation
JSON_DEPTH_MAX = 32  # deeper input is refused before it can exhaust the parser's stack
OPERATION_BYTES_MAX = 64 * 1024  # two fit into one WebSocket message (128 KB, API Gateway)

# --- what one request may hold ---------------------------------------------------------------
REQUEST_OPERATIONS_MAX = 1000  # one request is one page, so that it is appended whole or not
REQUEST_BYTES_MAX = 1024 * 1024  # far below Lambda's 6 MB; a page must compress below PAGE_BYTES
IDEMPOTENCY_KEY_CHARS_MAX = 128  # a UUID has 36; the key becomes part of a sort key

# --- pages -----------------------------------------------------------------------------------
PAGE_BYTES_MAX = 380_000  # a DynamoDB item holds 400 KB; the rest is for names and numbers
PAGE_TEXT_BYTES_MAX = REQUEST_OPERATIONS_MAX * (OPERATION_BYTES_MAX + 1)  # of one, unpacked
PAGE_PLAIN_BYTES_MAX = 900  # below one write unit (1 KB) compression saves nothing: stay readable
TRACES_PER_S = 1  # of a process, as X-Ray's own rule: instrumented callers ask with each request
TRACES_AT_ONCE = 10  # after a quiet while: who tries something by hand sees all of it
APPEND_ATTEMPTS_MAX = 8  # each loss means a filler overtook us; eight in a row is an outage

# --- reading ---------------------------------------------------------------------------------
READ_ITEMS_MAX = 4_000  # small ones fill a megabyte; unbounded, DynamoDB Local reads them all
READ_PAGES_BYTES_MAX = 1024 * 1024  # what one DynamoDB Query returns at most
NEAR_PAGES = 64  # of the end as it was seen last: a read that finds the end costs one, not two
PIECE_CHARS = 128 * 1024  # of a stream sent at once: a read may hold 20 MB of text, unpacked
STREAM_S_MIN = 60  # below it clients would take each end of a stream for a failure, and wait longer
STREAM_S_MAX = 840  # Lambda ends a function after 15 minutes; a stream ends before, between events
STREAM_RESUME_MS = 500  # of a browser: hardly felt, and no loop where nobody answers
STREAM_BYTES_MAX = 180_000_000  # Lambda cuts at 200 MB, anywhere; the last piece may be large
TAIL_BYTES_MAX = 8 * 1024 * 1024  # held for streams at the frontier; who is further behind reads
TAIL_PAGE_BYTES = 400  # a held page's objects, beside its text
HOLE_GRACE_MS = 2000  # a writer needs some 10 ms between number and page; then it is overtaken
HOLE_LOST_MS = 24 * 3600 * 1000  # no page lives for less: an older hole may be one that expired
WRITE_MS_MAX = 30_000  # from a page's number, or its stamp, to its write: a request ends then
CLOCK_SKEW_MS_MAX = 60_000  # writers' clocks are within this of each other (AWS: milliseconds)
STAMP_DISORDER_MS = CLOCK_SKEW_MS_MAX + WRITE_MS_MAX  # by which a later page may be older
CURSOR_CHARS_MAX = 64  # any id longer than this is refused before it is parsed

# --- filters ---------------------------------------------------------------------------------
FILTER_VALUES_MAX = 100  # each value is one item of the subscription index
FEED_NAME_CHARS_MAX = 63  # as a DNS label, to become part of a host name; consumers likewise

# --- followers -------------------------------------------------------------------------------
HOLE_POLL_MS = 100  # how often a waiting follower looks whether the hole has closed
FOLLOW_OPERATIONS_MAX = 10_000  # of one turn: a second's work; a read may hold 100,000 packed ones
FOLLOW_OPERATIONS_FIRST = 1_000  # of a run's first turn: a slow store takes them within its time
FOLLOW_CAUTION = 16  # so much smaller is the first turn behind a holder that died
FOLLOW_TURN_MS = 2_000  # a turn that took longer is halved, one that took half of it is doubled
FOLLOW_RUN_MS = 10_000  # one run yields after this, so that the lease moves on
FOLLOW_TIMEOUT_S = 15  # Lambda kills a run here
LEASE_MS = 20_000  # looked on for so long before it is taken over: outlives any run
LEASE_LATE_MS = 5_000  # without a renewal somebody looks on: a turn takes a second or two
LEASE_LOOK_MS = 10_000  # one function looks on for so long, then wakes the next: half of LEASE_MS
LEASE_LOOK_AGAIN_MS = 60_000  # a wake-up of who looked on may be lost: then somebody else begins

NOTE_BYTES_MAX = 570  # beside a checkpoint: with all else its item stays below one write unit, 1 KB

SWEEP_EVERY_MS = 60_000  # the schedule's pace
SWEEP_ERRORS_MAX = 20  # raised together: their tracebacks are one line of a log
SWEEP_PORTION = 2_000  # items of the connections' table at once, some 0.4 MB; then what is due
SWEEP_PORTIONS_MAX = 100  # of a sweep: 100,000 connections with one key of a filter each, 40 MB
SWEEP_LOOK_MS = 35_000  # a sweep begins no portion behind it: Lambda kills it after 55 s

# --- what calls for a person -----------------------------------------------------------------
LAG_PAGES_MAX = 1_000  # a second of the fastest feed, a day of a slow one: more is told if it lasts
FOLLOWER_AGE_S_MAX = 900  # of a page not handled: retries and takeovers take a minute or two
WAKE_LATE_MS = 30_000  # a stream wakes a follower within a second: the sweep finds what it did not
UPSTREAM_AGE_S_MAX = 120  # retries come each minute, so the second one has failed too
ARCHIVE_LAG_S_MAX = 1_800  # pages wait for a quarter of an hour; a busy feed's runs take some
REMIND_MS = 24 * 3600 * 1000  # of what may stay for days: who looks once a day is told once a day
OUTBOX_AGE_S_MAX = 300  # a message is forwarded within a second, or by one of five sweeps

# --- archive ---------------------------------------------------------------------------------
ARCHIVE_PART_BYTES = 8 * 1024 * 1024  # of text, packed one: a reader holds a part, in 512 MB
# Of a part, unpacked: the last page may end far above the size at which a part is written.
ARCHIVE_UNPACKED_BYTES_MAX = 2 * ARCHIVE_PART_BYTES + PAGE_TEXT_BYTES_MAX  # twice: its numbers
ARCHIVE_PAGES = 1_000  # that wait are a part or more, where a page holds some 8 KB of text
ARCHIVE_PART_OPERATIONS = 80_000  # small ones, of as many bytes; a second to pack
ARCHIVE_STEP_BYTES = 2 * 1024 * 1024  # of text, told at once: some twenty messages
ARCHIVE_LISTED = 1_000  # spans at once, as S3 lists them; 17 hours of a part a minute
ARCHIVE_LISTS_MAX = 20  # looked through for holes before a replay: two seconds; farther on the way

# --- push ------------------------------------------------------------------------------------
FEW_WATCHES = 100  # read at once: 8 units, as two operations' look-ups; none at all: 1 unit
CROWDED_MS = 60_000  # of page time, until a feed that had more is asked again
LOOK_UPS_MAX = 400  # of a turn, one after the other: two seconds; then all are read, 8,000 a query
JOIN_READS_MAX = 10  # of one subscription, some 10 MB: who is further behind comes back and replays
PUSH_LANES_MAX = 32  # 2,000 messages a second each: far above what API Gateway gives an account
LANE_DRAIN_MS = 600_000  # of page time that lanes given up are still woken; the sweep does, too
CHANGES_MAX = 200  # subscriptions a turn takes up: a second of it; a thousand come at once
DELIVERIES_MAX = 100_000  # of a turn with more than one page: some 20 MB, two seconds of a run
FRAME_BYTES_MAX = 120_000  # API Gateway refuses a message above 128 KB and bills per 32 KB
GZIP_BYTES_MIN = 400  # of a message that is packed: of one operation base64 takes back the gain
SEND_ATTEMPTS_MAX = 4  # a client that is busy for longer resumes from its cursor instead
MESSAGE_BYTES_MAX = 32 * 1024  # one frame a client may send (API Gateway closes above it)
SEND_BACKOFF_MS = 50  # doubles with each attempt: 350 ms in all, a run is not held up by one client
SENDS_FIRST = 16  # under way at once, until more have got through: a handshake takes 1 ms of CPU
SENDS_MAX = 256  # 12,800 a second at 20 ms an answer: more than a core signs
SEND_PAUSE_MS_MAX = 800  # of a sender that is throttled again: doubled from SEND_BACKOFF_MS
SEND_ANSWERS = 64  # so many get through, then who was refused before is forgotten
SEND_REFUSED_FEW = 4  # of them are clients that do not read; more mean that all are throttled
SEND_THROTTLED_MS = 5_000  # after such a sign each refusal is another one: it comes and goes
SEND_PATIENCE_MS = 3_000  # in which nothing gets out: half of what is left behind a follower's run
IDLE_TOLD_MAX = 1_000  # of them between two pages: a tenth of a second of sends
TELL_EVERY_MS = 3_000_000  # idle connections learn the moved cursor this often, within retention
REPLAY_RUN_MS = 20_000  # one replay yields after this
REPLAY_TIMEOUT_S = 30  # Lambda kills a replay here
REPLAY_LEASE_MS = 100_000  # outlives any replay, though one clock writes it and another reads it
CONNECTION_MS_MAX = 2 * 3600 * 1000 + 600_000  # API Gateway cuts after 2 h; then it is forgotten

# --- state -----------------------------------------------------------------------------------
BUCKETS = 64  # partitions of the state; each takes 1,000 writes a second
COPY_PART_ROWS = 128  # living ones, told again at most by a copy that was cut; 4 million a bucket
COPY_STEP_ROWS = 500  # one step of a copy: fills a message, and small states take one step
SUM_TYPES_MAX = 8  # that a feed has sums of: 512 bytes each, 5 write units for all of them
SUM_CHANGES_MAX = 56  # of sums in a note, 10 bytes each: above it they are stored
SUMS_WANTED_MS = 3_600_000  # after somebody asked; chained feeds ask six times in it
SUM_COUNT_ROWS = 2_000  # counted between two reads of the log: some hundredths of a second
TOMBSTONE_SLACK_MS = 7 * 24 * 3600 * 1000  # deleted objects outlive the log by a week

# --- corrections -----------------------------------------------------------------------------
CORRECT_SECTION = 10_000  # looked up together: each reads the log since the state's checkpoint
CORRECT_SECTION_BYTES = 16 * 1024 * 1024  # held at once, with the objects they concern
CORRECT_BATCH_BYTES = 370_000  # deflated or not it fits a page, so no number is taken in vain
CORRECT_POLL_MS = 50  # while our number holds readers up
CORRECT_POLLS_MAX = 20  # a second: below HOLE_GRACE_MS, so that nobody has to fill our number
CORRECT_YIELD_POLLS_MAX = 100  # five seconds without a number: a hole is overdue after two
CORRECT_RUN_MS = 240_000  # one run yields after this; a batch takes some 50 ms
AMEND_RUN_MS = 10_000  # as CORRECT_RUN_MS, of a request: an HTTP API gives up after 30 s
AMEND_TIMEOUT_S = 29  # a last batch may wait for a writer; a repeat finds what was applied
CORRECT_TIMEOUT_S = 300  # Lambda kills a run here
LOOKUP_KEYS_MAX = 1000  # of one request: with the longest keys they fit REQUEST_BYTES_MAX
LOOKUP_KEYS = 25  # read at once: their longest lines and a full reply, escaped, are below 6 MB
LIVE_LOOKS_MAX = 5  # at a row that changes between any two: its owner tells what becomes of it

# --- bounds on who posts ---------------------------------------------------------------------
BOUND_POLL_MS = 50  # as for a correction: our number holds readers up meanwhile
BOUND_POLLS_MAX = 20  # a second: below HOLE_GRACE_MS, so that nobody has to fill our number

# --- verifying ------------------------------------------------------------------------------
VERIFY_LOOK_MS = 1_000  # how old a checkpoint may be: what changed since makes a bucket differ
REPAIR_BATCH = 1_000  # rows put right before the next are: a second's work, told as it goes on

# --- syncs in the cloud ----------------------------------------------------------------------
SYNC_APPLIERS_MAX = 2  # one appends as fast as a state is projected, another reads meanwhile
SYNC_EXPORT_BYTES = 10 * 1024**3  # of the state; to scan less takes minutes and a third of a dollar
SYNC_APPROVAL_S = 3 * 24 * 3600  # a weekend; a plan ages out after half the life of a tombstone
SYNC_JOB_MINUTES = 12 * 60  # 100,000,000 objects took five minutes on two cores: far above
SYNC_CAUSE_CHARS = 1000  # of an error in a report: its sentence, without pages of stack
DUMP_ADDRESS_CHARS_MAX = 1100  # a key has 1,024 bytes at most, a bucket's name 63

# --- status ----------------------------------------------------------------------------------
COUNT_SOON_MS = 1_000  # somebody came or left: told at once, but not for each of a thousand
COUNT_EVERY_MS = 20_000  # else; two write units per process beside its five reads a second
PRESENCE_MS = 45_000  # two tallies may fail; a process that was killed is forgotten after this
SWEPT_PRESENCE_MS = 130_000  # the sweep counts each minute; one run may be missed
LAG_MS_MAX = 120_000  # two sweeps have rung since: this follower does not run or cannot keep up
STATUS_READS_MAX = 4  # 1 MB each, in search of the frontier behind followers that stand still
STATUS_AGE_MS = 1_000  # nobody needs a password for it: a crowd costs one report a second

# --- retention -------------------------------------------------------------------------------
RETENTION_MS_MIN = 3600 * 1000  # far above any function's time limit, so no writer is that slow
TOMBSTONE_MS_MIN = RETENTION_MS_MIN + TOMBSTONE_SLACK_MS  # no retention lets them live shorter
TTL_SLACK_MS = 24 * 3600 * 1000  # how long the sweep may stand still before a page expires unseen
RENEW_WITHIN_MS = 12 * 3600 * 1000  # of its expiry a page is renewed: a sweep may fail for hours
RENEW_EVERY_MS = 3 * 3600 * 1000  # a round: the pages that stay are looked at four times before
RENEW_PAGES_MAX = 20_000  # a minute, as a query brings them: seven seconds by 16 threads
CLAIM_MS = 24 * 3600 * 1000  # how long an Idempotency-Key is remembered

# --- what a feed's owner sets ----------------------------------------------------------------
PROFILE_AGE_MS = 4_000  # how late a change may be noticed: the promise is five; 0.25 RRU a second
SHARED_S = 1  # of an answer in a cache: with PROFILE_AGE_MS the five seconds of that promise
OBJECT_URL_CHARS_MAX = 1024  # far longer than any link in use; it is sent with every event
PASSWORDS_MAX = 2  # the old and the new one, while clients move from one to the other
PASSWORD_BYTES_MIN = 8  # below it guessing is cheap, even at one guess per 15 ms of our CPU
PASSWORD_BYTES_MAX = 256  # as base64 with a user name it stays far below what headers may hold
VERIFIED_MAX = 64  # two passwords for each role of sixteen feeds; a digest has 32 bytes

# --- guesses ---------------------------------------------------------------------------------
MISSES_MS = 10_000  # in which they are counted: who mistyped is let in again soon
MISSES_MAX = 50  # of a feed, a process and that time: 2.5 s of hashing, or 100 reads of keys
USER_MISSES_MAX = 10  # bcrypt takes 290 ms a guess, so as much time as the above

# --- keys ------------------------------------------------------------------------------------
KEY_AGE_MS = 4_000  # how late a revocation may be noticed: the promise is five; 0.5 RRU each time
KEYS_KNOWN_MAX = 4_096  # in a process: some 2 MB; one that was forgotten is read again
KEY_RATE_MAX = 10_000  # requests a second: more than a feed takes
KEY_WINDOW_MS = 10_000  # in which processes agree on a rate: ten times as long as they settle
KEY_READ_SIZE = 1024 * 1024  # read for a key, as stored, is a request: characters of text, or bytes
KEY_COUNT_MS = 120_000  # a window's count is kept so long: clocks differ by less than a minute
KEY_STREAMS = 40  # at once, where a key says nothing: a tenth of what prod's size lets in
KEY_STREAMS_MAX = 1_000  # a key may have: the concurrency of an account that never asked for more
STREAM_HOLD_MS = 15 * 60_000  # no function lives longer: a hold of one that died ends here
STREAM_HELD_RETRY_S = 30  # when to ask again for a stream: another one may have ended
KEY_LABEL_CHARS_MAX = 200  # of a label, and of who made a key: a line of a list
KEY_KEPT_MS = 30 * 24 * 3600 * 1000  # a key that ended is listed for a month, then it is gone
ENDED_MAX = 1_000  # keys in a profile whose connections are let go: some 25 KB, 7 RRU at worst

# --- changes ---------------------------------------------------------------------------------
CHANGE_SLOT_BITS = 10  # 1,024 slots hold any page; 43 bits are left for pages below 2^53
CHANGES_LIMIT = 100  # as changeagent's default
CHANGES_LIMIT_MAX = 2**32 - 1  # what changeagent takes for a number; bytes bound a reply
CHANGES_BYTES_MAX = 4 * 1024 * 1024  # of a reply; Lambda buffers 6 MB, and JSON must fit memory
LIST_TIMEOUT_S = 30  # an HTTP API gives up then; a wait ends before, below
CHANGES_BLOCK_S_MAX = 25  # an HTTP API gives up after 30 s; a client asks again
CHANGES_HOLE_S = 3  # a hole is closed by then, and what lies behind it was acknowledged
CHANGES_SCAN_MS = 15_000  # of one reply, in search of a rare tag; the cursor moves, nothing is lost
CHANGES_FIRST_PAGES = 4  # of the first read; each next one is four times as long
CHANGES_FIRST_SUMMARIES = 16  # of the first read of the index, likewise
HEAD_AGE_MS = 1_000  # a reply within the log tells the head as it was this long ago
HEAD_PAGES_MAX = 64  # read in search of the head behind the followers

# --- index of tags ---------------------------------------------------------------------------
SUMMARY_PAGES = 64  # summed up together: one write unit in 64 where a page holds one entry
SUMMARY_TAGS = 1000  # or as soon as there are so many: 1.5 KB, a page of a thousand operations
SUMMARY_BITS = 12  # of each tag: 0.3 % of what is read for it does not hold it
INDEX_EVERY = 15  # minutes in which what fills no summary waits: listers read it in the log
INDEX_RUN_MS = 40_000  # one run yields after this; the next one comes within a minute
INDEX_TIMEOUT_S = 55  # Lambda kills a run here
FORWARD_RUN_MS = 40_000  # one run of the outbox yields after this; it is killed after 55 s

# --- listeners -------------------------------------------------------------------------------
RESOURCES_MAX = 32  # of a feed; each is sent with every list of them, and kept in its profile
MAX_AGE_S_MIN = 60  # the sweep looks once a minute; followers bound the floor in any case
VERSION_MAX = 999_999_999  # of a registration: there are two, and a number is measured first
INSTANCE_BYTES_MAX = 512  # with a resource it must fit DynamoDB's 1,024 B sort key
SERVICE_BYTES_MAX = 1024  # a name for people, stored with each resource that is registered
REGISTERING_MS = 75_000  # outlives the function that answers, see REPLAY_LEASE_MS
OBJECTS_MAX = 1000  # of one page of a bootstrap: some hundred kilobytes
OBJECTS_BYTES_MAX = 2 * 1024 * 1024  # of one page; Lambda answers with 6 MB at most
CAPTURE_BYTES = 370_000  # of a page of writes: deflated or not it fits, so none is refused for it
OBJECTS_READS_MAX = 64  # of one page: every bucket of a small state, two seconds of a large one

# --- named consumers -------------------------------------------------------------------------
CONSUMERS_MAX = 100  # of a feed: one query lists them, once a minute
CONSUMER_LEASE_MS = 30_000  # a worker renews it with each acknowledgement, three times at least
WORKER_CHARS_MAX = 128  # a host, a process and something random
CONSUMER_SPANS_MAX = 1000  # acknowledged beyond what is not: 30 KB, thirty write units at worst
ACK_IDS_MAX = 1000  # of one request: a batch of as many as one page may hold
ACK_PAGES_MAX = 64  # that one request names entries of: each is read, to be sure that they exist
ADVANCE_PAGES = 16  # read at once in search of the first that is not acknowledged
ADVANCE_READS_MAX = 4  # of a request in that search; the next request goes on from there
UPCOMING_READS_MAX = 256  # of an operator's step, who waits: two seconds, of a rare type
PARKED_MAX = 90  # of a consumer: with their consumer and a note they fit one transaction of 100
ERROR_CHARS_MAX = 1000  # of a worker's error: its sentence, without pages of stack
WHY_CHARS_MAX = 500  # an operator's reason
NOTES_MAX = 100  # told at once, the latest first
NOTE_MS = 365 * 24 * 3600 * 1000  # a year: when an audit asks, the note is there
LOG_ENTRIES_MAX = 1000  # of the log told at once
LOG_BYTES_MAX = 2 * 1024 * 1024  # likewise; Lambda answers with 6 MB at most
CONSUMER_ATTEMPTS_MAX = 5  # each loss means that a worker or an operator wrote at the same moment

# --- chained feeds --------------------------------------------------------------------------
SHARE_PARTS_MAX = 4096  # that a feed may be divided into: more would be a list, not a rule
PORTION_BYTES = 1024 * 1024  # of one reply of whole pages, unless it is asked for less
PORTION_BYTES_MAX = 4 * 1024 * 1024  # at most: Lambda answers with 6 MB
PORTION_BYTES_MIN = 4 * PAGE_BYTES_MAX  # what a relay asks for: every page fits, deflated or not
STATE_KEY_BYTES_MAX = 1024  # DynamoDB takes no longer one: where rows go on is asked in its words
PORTION_PAGES_MAX = 90  # with the relay itself and the head they fit one transaction of 100
PORTION_BLOCK_S_MAX = 20  # of a reply that waits for news: it ends before any gateway does
RELAY_POLL_S = 2  # as above, where leaders are elected: the seat is renewed between two replies
RELAY_LEASE_MS = 45_000  # outlives a reply that waits, with its time limit: see LEASE_MS
RELAY_RUN_MS = 240_000  # one run of a relay yields after this and rings for the next
RELAY_TIMEOUT_S = 300  # RELAY_RUN_MS and the last reply
RELAY_BACKOFF_MS = 500  # before the second attempt, doubled with each
RELAY_BACKOFF_MS_MAX = 60_000  # never longer: an upstream that is back is heard within a minute
RELAY_TELL_MS = 10_000  # how often a relay without news is written: 0.1 WRU a second
RELAY_COMPARE_MS = 600_000  # between two looks at the upstream's sums: one request
RELAY_COMPARE_WAITS = 10  # seconds that pages may wait for both states to stand at one page
RELAY_COUNT_ROWS_MAX = 50_000  # of a bucket, read in seconds: a state of 3,200,000 objects
RELAY_WRITE_BYTES = 3_500_000  # of pages: a transaction holds 4 MB, with names and the rest
LEADER_LEASE_MS = 4_000  # a leader that has not renewed its seat for so long has lost it
LEADER_LEASE_RENEW_MS = 1_000  # three renewals may be lost
LEADER_LEASE_FAILURES = 3  # of a leader in a row: some four seconds, then another one may do better
LEADER_LEASE_REST_MS = 30_000  # before who gave up tries again: the others have had their turn
MEMBER_MS = 30_000  # a member of a cluster that was not heard of for so long is shown as gone
LEADERS_MAX = 8  # of a cluster: each reads the master
VIA_MAX = 32  # feeds that one may come through: a longer chain is a mistake

# --- webhooks that are told what happened ------------------------------------------------------
WEBHOOKS_MAX = 50  # of a feed: each is a named consumer, and all are one document of 100 KB
WEBHOOK_URL_CHARS_MAX = 1024  # longer ones are cut by proxies
WEBHOOK_S = 15  # for an answer, as Standard Webhooks advises; half of what a lease lasts
WEBHOOK_AT_ONCE = 8  # of different objects, under way to one endpoint: 80 a second at 100 ms each
WEBHOOK_SECRET_BYTES = 32  # of a secret that we make; Standard Webhooks allows 24 to 64
WEBHOOK_ROTATION_MS = 24 * 3600 * 1000  # a replaced secret signs beside the new one, for a day
WEBHOOK_ATTEMPTS_MAX = 10  # of one message: within 75 hours, by the delays of Standard Webhooks
WEBHOOK_TURN_MS = 10_000  # of one endpoint before another one's turn; an attempt may outlast it

# --- durable streams -------------------------------------------------------------------------
STREAM_PRODUCERS_MAX = 100  # remembered of a stream: 8 KB, written with each append by a producer
STREAM_PAGES_MAX = 1_000  # of one answer: each is a read of 30 us, and a reader asks on
STREAM_WAIT_S = 20  # of a long poll: gateways and proxies give up after 30 s
STREAM_LIVE_S = 60  # of an event stream, as the protocol says; then its reader resumes
STREAM_SAID_S = 20  # after so long without news the offset is told again: proxies cut after 30 s
STREAM_CURSOR_S = 20  # how long answers to one offset have the same cursor, as the protocol says
STREAM_CURSOR_DIGITS_MAX = 15  # of a cursor that is given back; ours have eight

# --- connections of a server -----------------------------------------------------------------
HEAD_BYTES_MAX = 64 * 1024  # of a request line with its fields; browsers send at most a few KB
HEAD_FIELDS_MAX = 256  # of a head, and of trailers: browsers behind three proxies send fifty
HEAD_S = 10.0  # to send a head or finish a TLS handshake: seconds on the worst mobile network
KEEP_ALIVE_S = 75.0  # an unused connection stays open: proxies use one again for 60 s
STALL_S = 20.0  # a client may read nothing while there is data for it; then it resumes
CLOSE_S = 5.0  # to read the end of an answer before the connection is reset
LINGER_S = 10.0  # to finish a body that was refused: a reset would destroy the answer
PIPELINED_MAX = 32  # requests that wait for an earlier answer on one connection; browsers send one
FILES_MAX = 65_536  # file descriptors that a process asks for: 64 KB of buffers each are 4 GB
FILES_RESERVED = 256  # of them for files, threads and outgoing connections; the rest are clients'
BODY_S = 60.0  # to send a body: the largest one at 170 KB a second
BODY_IDLE_S = 20.0  # without a byte of a body, as long as a reader may stall
BODIES_BYTES_MAX = 128 * 1024 * 1024  # of bodies in memory at once: 12 of the largest, 100 of posts

# --- restoring ------------------------------------------------------------------------------
NUMBERS_PER_S_MAX = 10_000  # a server commits about as many pages; a counter of DynamoDB 1,000
PAGE_NUMBER_MAX = 2**40 - 1  # ten hex digits of an event id
JUMPS_MIN = 64  # a jump takes this part of the numbers left: 2^34 at first, a log of terabytes
LOST_RANGES_MAX = 100  # a profile is read with each cursor; older ones are merged

# --- what an operator writes down ------------------------------------------------------------
DOCUMENT_AGE_MS = 4_000  # how late a change may be noticed; the promise is five seconds
DOCUMENT_BYTES_MAX = 256 * 1024  # an item holds 400 KB; three thousand users
USERS_MAX = 2_000  # each one's line has some 80 bytes
CONFIGURATION_BYTES_MAX = 64 * 1024  # HOOKS_MAX with long addresses and headers, many times
HOOKS_MAX = 10  # asked at once, for each change
HOOK_S = 10  # for the answer of all: an HTTP API gives up after 30 s
BCRYPT_COST_MAX = 14  # above it one check takes a second of a core

# --- tokens of an issuer -------------------------------------------------------------------------
TOKEN_LEEWAY_S = 60  # two clocks that are set by NTP differ by less than a second; others by more
TOKEN_GRANTS_MAX = 100  # a token fits a header, 10 KB: each grant has some 80 bytes
