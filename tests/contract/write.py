"""Write golden samples and JSON schemas for messages and kinds that have none yet (`make schemas`).

Existing files are never touched: a golden sample is what was first published. A schema grows only additively; run with
`--grow` after the additive test passes.
"""

import json
import sys
from pathlib import Path

from tests.contract.samples import MODELS, sample

HERE = Path(__file__).parent


def main() -> None:
    grow = "--grow" in sys.argv
    for name, model in MODELS.items():
        golden, schema = HERE / "golden" / f"{name}.json", HERE / "schemas" / f"{name}.json"
        for path in (golden, schema):
            path.parent.mkdir(exist_ok=True)
        if not golden.exists():
            golden.write_text(json.dumps(sample(model), indent=1, sort_keys=True) + "\n")
        if grow or not schema.exists():
            schema.write_text(json.dumps(model.model_json_schema(by_alias=True), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
