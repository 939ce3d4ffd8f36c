//! What is wrong with a kubeconfig, with a user's rights or with the definitions is named, and the doctor does not call it healthy.

use crate::cluster::Cluster;
use crate::harness::Desk;

#[test]
fn a_missing_right_is_named_with_the_command_that_grants_it() {
    let Some(cluster) = Cluster::for_test("a_missing_right_is_named_with_the_command_that_grants_it") else {
        return;
    };
    let desk = cluster.desk_of_joe();
    let told = [
        "cannot list resource \"ippools\" in API group \"crd.projectcalico.org\"",
        "--verb=list --resource=ippools.crd.projectcalico.org",
        "--user=joe",
    ];
    desk.plumb(&["get", "ippools"]).refused(1, &told);
    // The doctor asks for the cluster's settings first.
    let told = ["User \"joe\" cannot get resource \"clusterinformations\"", "--verb=get", "--user=joe"];
    desk.plumb(&["doctor", "--settle", "0"]).refused(2, &told);
}

#[test]
fn a_broken_kubeconfig_is_named_without_its_secrets() {
    let Some(cluster) = Cluster::for_test("a_broken_kubeconfig_is_named_without_its_secrets") else { return };
    let path = cluster.server.kubeconfig().unwrap().with_file_name("broken");
    std::fs::write(&path, "users: [{name: a, user: {token: hunter2\nclusters: 7\n").unwrap();
    let desk: Desk = cluster.desk_with(path);
    for (words, code) in [(&["get", "ippools"][..], 1), (&["doctor", "--settle", "0"][..], 2)] {
        let ran = desk.plumb(words);
        ran.refused(code, &["broken is not valid"]);
        assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
    }
}
