"""As much of kustomize as deploy/kustomize uses: resources, components, JSON patches and generated ConfigMaps.

Objects are the same as those of 'kubectl kustomize', except that the names of ConfigMaps get no hash: without_hashes() takes it
off the other's. tests/deploy/manifests_test.py compares the two.
"""

import os
import re

import yaml

KNOWN = {"apiVersion", "kind", "resources", "components", "patches", "configMapGenerator"}
PATCH_KEYS = {"target", "path"}


def read(path):
    with open(path, encoding="utf-8") as file:
        return [document for document in yaml.safe_load_all(file) if document]


def apply_patch(target, operations):
    for operation in operations:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        at = target
        for part in way:
            at = at[int(part)] if isinstance(at, list) else at[part]
        if isinstance(at, list):
            if operation["op"] == "add" and last == "-":
                at.append(operation["value"])
            elif operation["op"] == "replace":
                at[int(last)] = operation["value"]
            else:
                raise ValueError(f"no such operation here: {operation}")
        elif operation["op"] == "add" or (operation["op"] == "replace" and last in at):
            at[last] = operation["value"]
        else:
            raise ValueError(f"no such operation here: {operation}")


def generated(entry, folder, objects):
    data = {}
    for name in entry["files"]:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            data[name] = file.read()
    if entry.get("behavior") == "merge":
        old = next(o for o in objects if o["kind"] == "ConfigMap" and o["metadata"]["name"] == entry["name"])
        old["data"].update(data)
        return []
    return [{"apiVersion": "v1", "kind": "ConfigMap", "data": data,
             "metadata": {"name": entry["name"], "labels": dict(entry["options"]["labels"])}}]


def build(folder):
    """The objects of a folder with a kustomization.yaml."""
    (rules,) = read(os.path.join(folder, "kustomization.yaml"))
    unknown = set(rules) - KNOWN
    if unknown:
        raise ValueError(f"{folder}: {unknown} is more of kustomize than is known here")
    objects = []
    for name in rules.get("resources", []) + rules.get("components", []):
        path = os.path.join(folder, name)
        objects += build(path) if os.path.isdir(path) else read(path)
    for patch in rules.get("patches", []):
        assert set(patch) == PATCH_KEYS, patch
        (operations,) = read(os.path.join(folder, patch["path"]))
        (target,) = [o for o in objects
                     if o["kind"] == patch["target"]["kind"] and o["metadata"]["name"] == patch["target"]["name"]]
        apply_patch(target, operations)
    for entry in rules.get("configMapGenerator", []):
        objects += generated(entry, folder, objects)
    return objects


def without_hashes(text):
    """The output of kubectl kustomize with the plain names of generated ConfigMaps."""
    return re.sub(r"(name: hotbed-(?:server|serving|coordinator))-[a-z0-9]{10}\b", r"\1", text)


def by_name(objects):
    return {(o["kind"], o["metadata"]["name"]): o for o in objects}
