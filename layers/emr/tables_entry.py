"""Start the update of tables: the script of an EMR job, which imports the job's archive."""

import sys

from tidings.lake.emr import main

if __name__ == "__main__":
    sys.exit(main())
