"""The process that surveys some classes and prints one JSON line for each; a crash costs one class."""

from __future__ import annotations

import json
import os
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing may be fetched: what needs a download is a failure with a name


def main() -> None:
    """Survey the classes named on the command line."""
    warnings.filterwarnings("ignore")
    from survey.environment import prepare

    prepare()
    from survey.measure import as_json, measure

    for name in sys.argv[1:]:
        print(json.dumps({"begin": name}), flush=True)
        print(json.dumps(as_json(measure(name))), flush=True)


if __name__ == "__main__":
    main()
