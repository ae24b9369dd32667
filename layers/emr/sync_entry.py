"""Start the planning of a sync: the script of an EMR job, which imports the job's archive."""

import sys

from tidings.sync.stage import main

if __name__ == "__main__":
    sys.exit(main())
