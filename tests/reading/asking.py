"""Asks the real classes (`judge.py`, in a process of its own), and this package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ziplan.files.compose import read_json
from ziplan.runtimes.deepspeed.reading import Question, Reading, open_config, read_config
from ziplan.runtimes.deepspeed.reading.raw import Read, read_mapping
from ziplan.runtimes.deepspeed.reading.remarks import Notes

JUDGE = Path(__file__).parent / "judge.py"


def asked(*questions: list[Any]) -> list[dict[str, Any]]:
    """The real classes' answers, each {"answer": ...} or {"error": ..., "message": ...}."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
    done = subprocess.run(
        [sys.executable, str(JUDGE)],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout[done.stdout.index("[") :])


def taken(config: dict[str, Any], ranks: int = 1) -> tuple[Read, Notes]:
    """What this package makes of a config's mapping."""
    document = read_json(json.dumps(config, indent=1), "ds_config.json")
    notes = Notes(document)
    return read_mapping(document.data, ranks, notes), notes


def reading_of(folder: Path, content: Any, name: str = "ds_config.json", **question: Any) -> Reading:
    """A file with this content, read whole."""
    text = content if isinstance(content, str) else json.dumps(content, indent=1)
    (folder / name).write_text(text)
    return read_config(open_config(folder / name, name), Question(**{"ranks": 1, **question}))


def told(reading: Reading, kind: str) -> dict[str, str]:
    """Remarks of one kind, by path."""
    return {remark.path: remark.message for remark in reading.remarks if remark.kind == kind}
