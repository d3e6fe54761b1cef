"""`python -m warren.spark.pipelines` is `warren pipeline`."""

import sys

from warren.spark.pipelines.main import main

sys.exit(main(sys.argv[1:]))
