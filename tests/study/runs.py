"""A file of one record, to be changed in one place at a time."""

import copy
import json

RECORD = {
    "id": "one-run",
    "locator": "table 1",
    "cluster": {"machine": "dgx-a100-80g"},
    "model": "llama-3.1-8b",
    "training": {"sequence_length": 4096, "precision": "bf16", "attention": "flash"},
    "plan": {"zero_stage": 3, "micro_batch_size": 1, "activation_checkpointing": "full"},
    "measured": {"step_time_s": 3.0},
    "quality": "exact",
}


def write(folder, *changes, name="runs.yaml"):
    """A file with one record for each set of changes (dotted path: value; None takes a key away)."""
    records = []
    for number, changed in enumerate(changes):
        record = copy.deepcopy(RECORD) | {"id": f"run-{number}"}
        for path, value in changed.items():
            *outer, last = path.split(".")
            place = record
            for step in outer:
                place = place.setdefault(step, {})
            if value is None:
                del place[last]
            else:
                place[last] = value
        records.append(record)
    document = {
        "schema": "ziplan.measurement/1",
        "source": {"title": "A test", "url": "https://example.org"},
        "records": records,
    }
    path = folder / name
    path.write_text(json.dumps(document, indent=2))
    return path
