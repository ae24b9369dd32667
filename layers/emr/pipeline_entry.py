"""Start the pipelines: the script of an EMR Serverless job, which imports the job's archive."""

import sys

from tidings.pipelines.emr import main

if __name__ == "__main__":
    sys.exit(main())
