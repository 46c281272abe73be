"""A program of the nursery that does as it is told, to test the nursery by."""

import os
import time

IMPORTS = ("json",)
TOUCHED = []


def run(job):
    print("told to", job["do"], flush=True)
    if job["do"] == "fail":
        raise RuntimeError("as it was told")
    if job["do"] == "die":
        os.abort()
    if job["do"] == "wait":
        time.sleep(600)
    TOUCHED.append(job["do"])
    return {"touched": TOUCHED, "folder": os.getcwd(), "parent": os.getppid()}
