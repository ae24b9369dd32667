"""Script that EMR Serverless starts; the job itself is a module of the archive."""

import sys

from tidings.sync.stage import main

if __name__ == "__main__":
    sys.exit(main())
