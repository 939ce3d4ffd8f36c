//! Prompts: where in a pasted terminal a command begins, on which machine, and inside which pod.

use model::NodeName;

use evidence::PodName;

use super::draft::Section;

/// Programs whose output somebody may paste. A bare `#` or `$` is a prompt only before one of them, because the one
/// begins comments and the other variables.
const PROGRAMS: &str = "arp arping aws az bird birdc birdcl brctl bridge calicoctl cat chronyc cilium containerd \
                        conntrack crictl ctr curl date df dig dmesg docker echo etcdctl ethtool findmnt firewall-cmd free \
                        gcloud getenforce grep hostname ifconfig ip ip6tables ip6tables-save ipset iptables iptables-save \
                        ipvsadm journalctl k3s kubeadm kubectl ls lsmod lsof microk8s modprobe mount mtr nc nerdctl \
                        netstat networkctl nft nmcli nsenter nslookup oc openssl ping plumb podman ps resolvectl rke2 \
                        route ss sestatus ssh sudo swapon sysctl systemctl tail head tcpdump timedatectl tracepath \
                        traceroute ufw uname uptime wget";

/// A prompt ends before this.
const PROMPT_BYTES_MAX: usize = 80;

/// The section that begins with this line, if it is a prompt.
pub(crate) fn section(line: &str) -> Option<Section> {
    let (host, command) = split_prompt(line.trim_start())?;
    let command = command.trim();
    let words: Vec<&str> = command.split_whitespace().collect();
    let host = elsewhere(&words).or(host);
    Some(Section { command: Some(command.to_owned()), host, pod: inside_pod(&words) })
}

/// The host, if the prompt names one, and the command.
fn split_prompt(line: &str) -> Option<(Option<NodeName>, &str)> {
    if let Some(command) = line.strip_prefix("bird> ") {
        return Some((None, command));
    }
    // `[root@host dir]# command`
    if let Some(rest) = line.strip_prefix('[')
        && let Some((inside, after)) = rest.split_once(']')
        && let Some((_, place)) = inside.split_once('@')
        && let Some(command) = after.trim_start().strip_prefix(['#', '$'])
    {
        return Some((place.split_whitespace().next().and_then(host), command));
    }
    // `root@host:dir# command`, `host:dir # command`, `/ # command`, `# command`, `$command`
    let mark = line.bytes().take(PROMPT_BYTES_MAX).position(|byte| matches!(byte, b'#' | b'$' | b'%'))?;
    let (before, command) = line.split_at_checked(mark)?;
    let is_zsh = command.starts_with('%');
    let (before, command) = (before.trim(), command.get(1..)?);
    match before.split_once('@') {
        Some((user, place)) if is_word(user) && is_place(place) => {
            let name = place.split([':', ' ']).next().and_then(host);
            (!is_zsh || is_program(command)).then_some((name, command))
        }
        None => is_program(command).then(|| bare_host(before)).flatten().map(|host| (host, command)),
        _ => None,
    }
}

/// `host`, `host:~/dir`, `host ~`: a machine, and where on it.
fn is_place(place: &str) -> bool {
    place.split_once(' ').is_none_or(|(_, directory)| directory.trim_start().starts_with(['~', '/']))
}

/// The machine that a prompt without a user names, if it is one: `host:~`, `host`, or nothing but a directory or a shell.
fn bare_host(before: &str) -> Option<Option<NodeName>> {
    if before.is_empty()
        || before.starts_with(['/', '~'])
        || before.starts_with("sh-")
        || before.starts_with("bash-")
    {
        return Some(None);
    }
    let (name, directory) = before.split_once(':').unwrap_or((before, "~"));
    let is_host = is_word(name) && name.starts_with(|first: char| first.is_ascii_alphabetic());
    (is_host && directory.starts_with(['~', '/'])).then(|| host(name))
}

/// The machine that a command is sent to: `ssh root@n1 ip route`, `kubectl debug node/n1 -- …`.
fn elsewhere(words: &[&str]) -> Option<NodeName> {
    let mut rest = words.iter().skip_while(|word| **word == "sudo");
    match *rest.next()? {
        "ssh" => {
            let place = rest.find(|word| !word.starts_with('-'))?;
            // Alone it opens a shell, whose own prompts name the machine.
            rest.next()?;
            host(place.rsplit('@').next().unwrap_or(place))
        }
        "kubectl" | "oc" if words.contains(&"debug") => {
            let node = words.iter().find_map(|word| word.strip_prefix("node/"))?;
            (!node.is_empty()).then(|| node.into())
        }
        _ => None,
    }
}

fn is_program(command: &str) -> bool {
    let mut words =
        command.split_whitespace().skip_while(|word| word.contains('=') && !word.starts_with('='));
    let program = words.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or(program);
    PROGRAMS.split(' ').any(|known| known == program)
}

fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|character| character.is_ascii_alphanumeric() || "-_.".contains(character))
}

/// Without its domain: nodes are rarely called by that, and logs never say it.
fn host(text: &str) -> Option<NodeName> {
    is_word(text).then(|| text.split('.').next().unwrap_or(text).into())
}

/// `kubectl exec`, `nsenter`, `ip netns exec`, `docker exec`: what follows is seen from inside.
fn inside_pod(words: &[&str]) -> Option<Option<PodName>> {
    let has = |word: &str| words.contains(&word);
    let is_exec =
        has("exec") && ["kubectl", "oc", "docker", "crictl", "nerdctl", "ip"].iter().any(|tool| has(tool));
    if has("kubectl") && has("exec") {
        return Some(exec_pod(words));
    }
    (is_exec || has("nsenter")).then_some(None)
}

fn exec_pod(words: &[&str]) -> Option<PodName> {
    let mut namespace = None;
    let mut name = None;
    let mut rest = words.iter().skip_while(|word| **word != "exec").skip(1);
    while let Some(word) = rest.next() {
        match *word {
            "--" => break,
            "-n" | "--namespace" => namespace = rest.next().map(|word| (*word).to_owned()),
            "-c" | "--container" => drop(rest.next()),
            word if word.starts_with("--namespace=") => {
                namespace = word.split_once('=').map(|(_, value)| value.to_owned())
            }
            word if word.starts_with('-') => {}
            word if name.is_none() => name = Some(word.trim_start_matches("pod/").to_owned()),
            _ => break,
        }
    }
    let before = words.iter().position(|word| *word == "-n").and_then(|at| words.get(at + 1));
    Some(PodName { namespace: namespace.or_else(|| before.map(|word| (*word).to_owned())), name: name? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(line: &str) -> Option<(Option<NodeName>, String, bool)> {
        let section = section(line)?;
        Some((section.host, section.command?, section.pod.is_some()))
    }

    #[test]
    fn prompts_are_recognised() {
        let expect = |line: &str, host: Option<&str>, command: &str, inside: bool| {
            assert_eq!(read(line), Some((host.map(NodeName::from), command.to_owned(), inside)), "{line}");
        };
        expect("[root@slave-140 ~]# ip neigh", Some("slave-140"), "ip neigh", false);
        expect(
            "root@k8smaster2:~# calicoctl node status",
            Some("k8smaster2"),
            "calicoctl node status",
            false,
        );
        expect("admin@n1.example.org:/tmp$ ip a", Some("n1"), "ip a", false);
        expect("$ip addr", None, "ip addr", false);
        expect("# ip route", None, "ip route", false);
        expect("/ # arp -n", None, "arp -n", false);
        expect("wk-09:~ # conntrack -S", Some("wk-09"), "conntrack -S", false);
        expect("ops@lb0 ~ $ calicoctl get node", Some("lb0"), "calicoctl get node", false);
        expect("stig-7 # findmnt /opt", Some("stig-7"), "findmnt /opt", false);
        expect("gamma$ ip -br a", Some("gamma"), "ip -br a", false);
        expect("% kubectl get ns", None, "kubectl get ns", false);
        expect("me@laptop ~ % kubectl get ns", Some("laptop"), "kubectl get ns", false);
        expect("$ ETCDCTL_API=3 etcdctl get /x", None, "ETCDCTL_API=3 etcdctl get /x", false);
        expect("bird> show protocols", None, "show protocols", false);
        expect(
            "$ kubectl exec -it web-0 -n shop -- ip r",
            None,
            "kubectl exec -it web-0 -n shop -- ip r",
            true,
        );
    }

    #[test]
    fn the_pod_of_an_exec_is_known() {
        let pod =
            |line: &str| section(line).and_then(|section| section.pod).flatten().map(|pod| pod.to_string());
        assert_eq!(pod("$ kubectl exec -it web-0 -n shop -- ip r").as_deref(), Some("shop/web-0"));
        assert_eq!(pod("$ kubectl -n shop exec web-0 -c app -- ip r").as_deref(), Some("shop/web-0"));
        assert_eq!(pod("$ kubectl exec pod/web-0 ip r").as_deref(), Some("web-0"));
        assert_eq!(pod("# nsenter -t 1 -n ip r"), None);
    }

    #[test]
    fn other_lines_are_no_prompts() {
        for line in [
            "# a comment",
            "$HOME is set",
            "a 99% ip",
            "cpu # ip: many",
            "x: # ip is set",
            "99% ip",
            "a: b # kubectl",
            "10.0.0.1 dev eth0",
            "[INFO][1] x",
            "#",
            "$",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_can_be_tried(line in "\\PC{0,80}") {
            section(&line);
        }
    }
}
