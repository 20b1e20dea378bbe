"""What tests of the ledger run in processes of their own: python ledger_worker.py COMMAND …"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from db.store import Design, Store


def record(url: str, sweep: str, version: str, content: str) -> None:
    fits, predictions = json.loads(Path(content).read_text())
    with Store.open(url) as store:
        design = Design(replicates={"seed": "seed"})
        found = store.record_predictions(sweep, int(version), "data", fits, predictions, design=design)
    print(json.dumps(found.predictions))


def score(url: str, runs_dir: str, ids: str) -> None:
    with Store.open(url) as store:
        store.ingest(Path(runs_dir), ids.split(","))
        print(json.dumps(store.score_predictions()))


if __name__ == "__main__":
    {"record": record, "score": score}[sys.argv[1]](*sys.argv[2:])
