#!/usr/bin/env python3
"""Runs the container of a Kubernetes manifest without a cluster: its command with the variables that a
kubelet would give it.

  pod.py MANIFEST KIND/NAME --volume FOLDER [--index I] [--ip ADDRESS] [--uid UID] [--set NAME=VALUE]...
         [-- TRAINER...]

FOLDER takes the place of /checkpoints. TRAINER takes that of the arguments after the container's script.
A Secret must be named in token.yaml beside the manifest. Its value is TOKEN: token.yaml has none.
"""
import argparse
import os
import sys
from pathlib import Path

import yaml

MOUNT = "/checkpoints"
TOKEN = "0123456789abcdef0123456789abcdef"
TRAINER_AT = 2  # of the arguments: the script, its name, then the trainer


def load(path: Path) -> list[dict]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def find(documents: list[dict], kind: str, name: str) -> dict:
    return next(one for one in documents if one["kind"] == kind and one["metadata"]["name"] == name)


def pod_template(document: dict) -> dict:
    spec = document["spec"]
    if document["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    return spec["template"]


def value_of(variable: dict, fields: dict[str, str], folder: Path) -> str:
    if "value" in variable:
        return variable["value"]
    source = variable["valueFrom"]
    if "fieldRef" in source:
        return fields[source["fieldRef"]["fieldPath"]]
    find(load(folder / "token.yaml"), "Secret", source["secretKeyRef"]["name"])
    return TOKEN


def command_and_variables(manifest: Path, document: dict, fields: dict[str, str], volume: str):
    """Returns the command and the variables of the only container of this document's pods."""
    (container,) = pod_template(document)["spec"]["containers"]
    variables = {
        one["name"]: value_of(one, fields, manifest.parent).replace(MOUNT, volume)
        for one in container.get("env", [])
    }
    if document["spec"].get("completionMode") == "Indexed":
        variables["JOB_COMPLETION_INDEX"] = fields["index"]
    command = [word.replace(MOUNT, volume) for word in container["command"]]
    return command, container.get("args", []), variables


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("manifest", type=Path)
    parser.add_argument("document")
    parser.add_argument("--volume", required=True)
    parser.add_argument("--index", default="0")
    parser.add_argument("--ip", default="127.0.0.1")
    parser.add_argument("--uid", default="uid-1")
    parser.add_argument("--set", action="append", default=[])
    own, trainer = sys.argv[1:], []
    if "--" in own:
        at = own.index("--")
        own, trainer = own[:at], own[at + 1 :]
    arguments = parser.parse_args(own)
    document = find(load(arguments.manifest), *arguments.document.split("/"))
    fields = {
        "index": arguments.index,
        "status.podIP": arguments.ip,
        "metadata.labels['batch.kubernetes.io/controller-uid']": arguments.uid,
    }
    command, rest, variables = command_and_variables(arguments.manifest, document, fields, arguments.volume)
    variables.update(one.split("=", 1) for one in arguments.set)
    if trainer:
        rest = [*rest[:TRAINER_AT], *trainer]
    os.environ.update(variables)
    os.execvp(command[0], [*command, *rest])


if __name__ == "__main__":
    main()
