"""vLLM's own load generator, ``vllm bench serve``, in its own process.

The command line of vLLM's CPU build does not start; the module behind it does. Arguments and
figures are vLLM's (``--save-result``).
"""

from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser

if __name__ == "__main__":
    parser = FlexibleArgumentParser(description=__doc__)
    add_cli_args(parser)
    main(parser.parse_args())
