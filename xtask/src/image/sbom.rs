//! The list of the image's parts, as SPDX describes one: Debian packages, crates, and every file with its digest.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::contents::Contents;
use super::tree::{Entry, sha1, sha256};
use crate::metadata::{Metadata, Package};

/// The crates of the programs that are in the image.
const CRATES: [&str; 3] = ["agent", "ctl", "cni"];
const NOT_SAID: &str = "NOASSERTION";
const IMAGE: &str = "SPDXRef-Image";

pub(super) fn document(contents: &Contents, version: &str, digest: &str) -> Result<Value> {
    let mut packages = vec![json!({
        "SPDXID": IMAGE, "name": "plumbline", "versionInfo": version, "downloadLocation": NOT_SAID,
        "licenseConcluded": NOT_SAID, "licenseDeclared": "Apache-2.0", "copyrightText": NOT_SAID,
        "filesAnalyzed": false, "primaryPackagePurpose": "CONTAINER",
        "checksums": [{ "algorithm": "SHA256", "checksumValue": digest.trim_start_matches("sha256:") }],
    })];
    packages.extend(contents.packages.iter().map(|package| {
        let checksum = json!([{ "algorithm": "SHA256", "checksumValue": package.sha256 }]);
        let purl = format!("pkg:deb/debian/{}@{}?arch=amd64", package.name, package.version);
        let mut listed =
            part(&format!("Debian-{}", package.name), &package.name, &package.version, NOT_SAID, &purl);
        listed["checksums"] = checksum;
        listed
    }));
    packages.extend(crates()?.iter().map(|package| {
        let purl = format!("pkg:cargo/{}@{}", package.name, package.version);
        let id = format!("Crate-{}-{}", package.name, package.version);
        part(&id, &package.name, &package.version, package.license.as_deref().unwrap_or(NOT_SAID), &purl)
    }));
    let described = json!({ "spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": IMAGE });
    let files = files(contents);
    let contained = packages.iter().skip(1).chain(&files).map(|part| {
        json!({ "spdxElementId": IMAGE, "relationshipType": "CONTAINS", "relatedSpdxElement": part["SPDXID"] })
    });
    let relationships: Vec<Value> = std::iter::once(described).chain(contained).collect();
    Ok(json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": format!("plumbline-{version}"),
        // A name, not a place: nothing has to be there.
        "documentNamespace": format!("https://spdx.org/spdxdocs/plumbline-{version}-{digest}"),
        "creationInfo": { "created": "1970-01-01T00:00:00Z", "creators": ["Tool: cargo xtask image"] },
        "packages": packages,
        "files": files,
        "relationships": relationships,
    }))
}

fn part(id: &str, name: &str, version: &str, licence: &str, purl: &str) -> Value {
    // An identifier has letters, digits, dots and dashes only.
    let id: String =
        id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    json!({
        "SPDXID": format!("SPDXRef-{id}"), "name": name, "versionInfo": version, "downloadLocation": NOT_SAID,
        "licenseConcluded": NOT_SAID, "licenseDeclared": licence.replace('/', " OR "), "copyrightText": NOT_SAID,
        "filesAnalyzed": false,
        "externalRefs": [{ "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl }],
    })
}

/// Crates that the programs are made of, ours included, once each.
fn crates() -> Result<Vec<Package>> {
    let metadata = Metadata::whole_tree()?;
    let mut found = BTreeMap::new();
    for name in CRATES {
        let package = metadata.package(name).with_context(|| format!("there is a crate {name}"))?;
        for used in metadata.closure(package) {
            found.insert((used.name.clone(), used.version.clone()), used.clone());
        }
    }
    Ok(found.into_values().collect())
}

fn files(contents: &Contents) -> Vec<Value> {
    let all = contents.foreign.iter().chain(&contents.own);
    let of = |(path, entry): (&String, &Entry)| match entry {
        Entry::File { content, .. } => Some(json!({
            "SPDXID": format!("SPDXRef-File-{}", sha256(path.as_bytes())), "fileName": format!("./{path}"),
            "checksums": [
                // SPDX asks for this one.
                { "algorithm": "SHA1", "checksumValue": sha1(content) },
                { "algorithm": "SHA256", "checksumValue": sha256(content) },
            ],
            "licenseConcluded": NOT_SAID, "copyrightText": NOT_SAID,
        })),
        _ => None,
    };
    all.filter_map(of).collect()
}
