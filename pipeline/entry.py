"""What EMR Serverless starts: a script, while the job is a module of an archive."""

import sys

from tidings.sync.emr import main

if __name__ == "__main__":
    sys.exit(main())
