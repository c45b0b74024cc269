#!/usr/bin/env python3
"""sbom.py --version V STATUS: the packages of a dpkg status file as an SPDX 2.3 document on standard output.

The same packages give the same bytes: the document has no time of its own, and its name is a hash of the packages.
"""

import argparse
import hashlib
import json
import re
import sys


def installed(status):
    """(name, version, architecture, source) of each installed package, by name."""
    packages = []
    for paragraph in status.split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", paragraph, re.M))
        if fields.get("Status", "").endswith(" installed"):
            packages.append((fields["Package"], fields["Version"], fields["Architecture"],
                             fields.get("Source", fields["Package"]).split()[0]))
    return sorted(packages)


def document(packages, version):
    digest = hashlib.sha256(json.dumps(packages).encode()).hexdigest()
    items = [{
        "SPDXID": f"SPDXRef-{re.sub('[^A-Za-z0-9.-]', '-', name)}",
        "name": name,
        "versionInfo": release,
        "downloadLocation": "NOASSERTION",
        "licenseConcluded": "NOASSERTION",
        "sourceInfo": f"built from: {source}",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                          "referenceLocator": f"pkg:deb/debian/{name}@{release.replace('+', '%2B')}?arch={architecture}"}],
    } for name, release, architecture, source in packages]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"hotbed-{version}",
        "documentNamespace": f"urn:hotbed:sbom:{digest}",
        "creationInfo": {"created": "1970-01-01T00:00:00Z", "creators": ["Tool: hotbed-sbom"]},
        "packages": items,
        "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                           "relatedSpdxElement": item["SPDXID"]} for item in items],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--version", required=True)
    parser.add_argument("status")
    args = parser.parse_args()
    with open(args.status, encoding="utf-8") as file:
        packages = installed(file.read())
    if not packages:
        sys.exit(f"sbom.py: {args.status} names no installed package; give dpkg's status file")
    json.dump(document(packages, args.version), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
