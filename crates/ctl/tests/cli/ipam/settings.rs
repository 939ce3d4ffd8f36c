//! `plumb ipam configure`.

use model::Key;
use serde_json::{Value, json};

use super::town::Town;
use crate::harness::Desk;

fn town() -> Town {
    Town::new(Desk::on_sqlite())
}

fn stored(town: &Town) -> Option<Value> {
    town.record(&Key::IpamConfig).map(|record| serde_json::from_slice(&record.value).unwrap())
}

#[test]
fn settings_are_changed_one_by_one() {
    let town = town();
    let configure = |args: &[&str]| {
        let args: Vec<&str> = ["ipam", "configure"].iter().chain(args).copied().collect();
        town.desk.plumb(&args).succeeded().to_owned()
    };
    assert_eq!(configure(&["--strictaffinity=true"]), "Successfully set StrictAffinity to: true\n");
    assert_eq!(stored(&town), Some(json!({"strict_affinity": true, "auto_allocate_blocks": true})));
    assert_eq!(configure(&["--max-blocks-per-host=4"]), "Successfully set MaxBlocksPerHost to: 4\n");
    let both = configure(&["--kubevirt-ip-persistence=Disabled", "--ip-cooldown-seconds", "60"]);
    assert_eq!(
        both,
        "Successfully set KubeVirtVMAddressPersistence to: Disabled\nSuccessfully set IPCooldownSeconds to: 60\n"
    );
    let expected = json!({"strict_affinity": true, "auto_allocate_blocks": true, "maxBlocksPerHost": 4,
        "kubeVirtVMAddressPersistence": "Disabled", "ipCooldownSeconds": 60});
    assert_eq!(stored(&town), Some(expected));
    configure(&["--maxblocks=0", "--strictaffinity=F"]);
    assert_eq!(stored(&town).unwrap().get("strict_affinity"), None);
}

#[test]
fn what_is_not_known_here_is_kept_and_what_is_the_same_is_not_written() {
    let town = town();
    town.put(
        Key::IpamConfig,
        r#"{"auto_allocate_blocks":true,"strict_affinity":true,"new":{"id":18446744073709551615}}"#,
    );
    let before = town.desk.dump();
    town.desk.plumb(&["ipam", "configure", "--strictaffinity=1"]).succeeded();
    assert_eq!(town.desk.dump(), before);
    town.desk.plumb(&["ipam", "configure", "--max-blocks-per-host=7"]).succeeded();
    assert_eq!(stored(&town).unwrap()["new"]["id"], json!(u64::MAX));
}

#[test]
fn a_dry_run_writes_nothing() {
    let town = town();
    let before = town.desk.dump();
    let ran = town.desk.plumb(&["ipam", "configure", "--strictaffinity=true", "--dry-run"]);
    assert_eq!(ran.succeeded(), "Dry run: would set StrictAffinity to: true\n");
    assert_eq!(town.desk.dump(), before);
}

#[test]
fn bad_settings_are_refused_and_nothing_changes() {
    let town = town();
    let before = town.desk.dump();
    for (args, code, text) in [
        (&[][..], 2, "--strictaffinity"),
        (&["--strictaffinity=yes"], 2, "use true or false"),
        (&["--strictaffinity"], 2, "--strictaffinity"),
        (&["--max-blocks-per-host=-1"], 2, "--max-blocks-per-host"),
        (&["--max-blocks-per-host=x"], 2, "--max-blocks-per-host"),
        (&["--kubevirt-ip-persistence=enabled"], 2, "Enabled"),
        (&["--ip-cooldown-seconds=x"], 2, "--ip-cooldown-seconds"),
        (&["--ip-cooldown-seconds=1201"], 1, "spec.ipCooldownSeconds: 1201"),
        (
            &["--max-blocks-per-host=4"],
            1,
            "spec.maxBlocksPerHost: 4: must be 0 unless strictAffinity is true",
        ),
        (
            &["--strictaffinity=true", "--max-blocks-per-host=4000000000"],
            1,
            "spec.maxBlocksPerHost: 4000000000",
        ),
        (&["--strictaffinity=true", "more"], 2, "more"),
    ] {
        let args: Vec<&str> = ["ipam", "configure"].iter().chain(args).copied().collect();
        town.desk.plumb(&args).refused(code, &[text]);
        assert_eq!(town.desk.dump(), before, "{args:?}");
    }
    town.put(Key::IpamConfig, "[");
    let before = town.desk.dump();
    town.desk
        .plumb(&["ipam", "configure", "--strictaffinity=true"])
        .refused(1, &["IPAMConfiguration(default)"]);
    assert_eq!(town.desk.dump(), before);
}

/// Nobody's change is lost.
#[test]
fn settings_that_are_changed_at_the_same_time_are_all_kept() {
    let town = town();
    std::thread::scope(|scope| {
        for args in ["--strictaffinity=true", "--kubevirt-ip-persistence=Disabled", "--ip-cooldown-seconds=9"]
        {
            let desk = &town.desk;
            scope.spawn(move || desk.plumb(&["ipam", "configure", args]).succeeded().to_owned());
        }
    });
    let expected = json!({"strict_affinity": true, "auto_allocate_blocks": true,
        "kubeVirtVMAddressPersistence": "Disabled", "ipCooldownSeconds": 9});
    assert_eq!(stored(&town), Some(expected));
}

#[test]
fn a_locked_store_is_warned_about() {
    let town = town();
    town.desk.plumb(&["datastore", "migrate", "lock"]).succeeded();
    let ran = town.desk.plumb(&["ipam", "configure", "--strictaffinity=true"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "Successfully set StrictAffinity to: true\n"));
    assert!(ran.stderr.starts_with("warning: the datastore is locked for a migration"), "{ran:?}");
}
