//! One module tuned in parts by real processes, and the recipes of `examples/fleet` run as on a cluster. Times are
//! simulated by `replay`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::executable::write_executable;
use crate::support::program::*;
use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

/// A checkout of the repository on a machine whose `autotune-lowered` takes its times from a recording.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples"), place.path("examples")).unwrap();
        fs::create_dir(place.path("bin")).unwrap();
        place.program(
            "autotune-lowered",
            &format!(
                "case \"$*\" in\n\
                 cache*) exec '{program}' \"$@\" ;;\n\
                 *--timer*) exec '{program}' \"$@\" ;;\n\
                 *) exec '{program}' \"$@\" --timer \"replay:$RECORDING\" ;;\n\
                 esac",
                program = env!("CARGO_BIN_EXE_autotune-lowered")
            ),
        );
        place.recording("here");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Adds a program to PATH.
    fn program(&self, name: &str, body: &str) {
        let path = self.path("bin").join(name);
        write_executable(&path, &format!("#!/usr/bin/env bash\nset -euo pipefail\n{body}\n"));
    }

    /// The recording for a device of this kind.
    fn recording(&self, kind: &str) -> PathBuf {
        let path = self.path(&format!("{kind}.json"));
        write_replay(&example().join("registry"), &path);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace(r#""device_kind":"cpu""#, &format!(r#""device_kind":"{kind}""#))).unwrap();
        path
    }

    /// A shell command in the checkout, run as on a platform with these variables.
    fn shell(&self, command: &str, variables: &BTreeMap<String, String>) -> Command {
        let mut shell = Command::new("bash");
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        shell.args(["-e", "-c", command]).current_dir(self.0.path()).env("PATH", path);
        for name in ["AUTOTUNE_LOWERED_CACHE", "AUTOTUNE_LOWERED_REGISTRY", "RUST_LOG"] {
            shell.env_remove(name);
        }
        shell.env("RECORDING", self.path("here.json")).envs(variables);
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        shell
    }

    /// Entries of a cache folder, or of another source of `cache ls`: configs by device, operation and call.
    fn entries(&self, cache: &str) -> BTreeMap<String, Value> {
        entries_of(&run(&self.path(cache), &["cache", "ls", "--format", "json"]).json())
    }

    /// The same for a file of entries.
    fn entries_of_file(&self, file: &str) -> BTreeMap<String, Value> {
        entries_of(&serde_json::from_slice(&fs::read(self.path(file)).unwrap()).unwrap())
    }
}

fn entries_of(document: &Value) -> BTreeMap<String, Value> {
    let rows = document["entries"].as_array().unwrap();
    rows.iter()
        .map(|row| {
            let name = format!("{} {} {} {}", row["device"], row["op_id"], row["call_key"], row["direction"]);
            (name, row["config"].clone())
        })
        .collect()
}

fn succeeded(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stderr)
}

/// Runs all in parallel; each must succeed.
fn all_at_once(commands: Vec<Command>) -> Vec<String> {
    let children: Vec<_> = commands.into_iter().map(|mut command| command.spawn().unwrap()).collect();
    children.into_iter().map(|child| succeeded(&child.wait_with_output().unwrap())).collect()
}

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn example_variables() -> BTreeMap<String, String> {
    variables(&[
        ("MODULE", "examples/transformer/module.hlo.txt"),
        ("REGISTRY", "examples/transformer/registry"),
        ("CACHES", "caches"),
    ])
}

/// The decisions of one process that tunes the whole module.
fn whole(place: &Place) -> BTreeMap<String, Value> {
    let tune = "autotune-lowered \"$MODULE\" --registry \"$REGISTRY\" --cache whole";
    all_at_once(vec![place.shell(tune, &example_variables())]);
    let entries = place.entries("whole");
    assert_eq!(entries.len(), 4);
    entries
}

#[test]
fn parts_side_by_side_decide_together_what_one_process_decides() {
    let place = Place::new();
    let whole = whole(&place);
    for parts in [2, 4, 7] {
        let commands = |place: &Place| {
            let part = |part| place.shell(&format!("examples/fleet/tune-part.sh {part} {parts}"), &example_variables());
            (0..parts).map(part).collect::<Vec<_>>()
        };
        let talk = all_at_once(commands(&place));
        let mut together = BTreeMap::new();
        for (part, talk) in talk.iter().enumerate() {
            let own = place.entries(&format!("caches/part-{part}-of-{parts}"));
            assert!(talk.contains(&format!("shard {part}/{parts} holds {} of 4 operations", own.len())), "{talk}");
            for (name, config) in own {
                assert_eq!(together.insert(name, config), None, "each in one part");
            }
        }
        assert_eq!(together, whole, "{parts} parts");
        // a second time: nothing is measured
        for talk in all_at_once(commands(&place)) {
            assert!(talk.contains("nothing was measured") || talk.contains("nothing new"), "{talk}");
        }
    }
    let merge = "examples/fleet/merge-parts.sh 4 merged.json";
    all_at_once(vec![place.shell(merge, &example_variables())]);
    assert_eq!(place.entries_of_file("merged.json"), whole);
    // a part that never ran is missing from the publication
    fs::remove_dir_all(place.path("caches/part-2-of-4")).unwrap();
    let output = place.shell("examples/fleet/merge-parts.sh 4 other.json", &example_variables()).output().unwrap();
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && talk.contains("caches/part-2-of-4 is missing"), "{talk}");
    assert!(!place.path("other.json").exists());
}

#[test]
fn a_call_stays_in_its_part_whatever_else_the_module_holds() {
    let place = Place::new();
    let timer = format!("replay:{}", place.path("here.json").display());
    let planned = |module: &str, more: &[&str]| -> Vec<(String, usize)> {
        let module = example().join(module).display().to_string();
        let mut found = Vec::new();
        for part in 0..3 {
            let shard = format!("{part}/3");
            let arguments = [module.as_str(), "--timer", &timer, "--dry-run", "--format", "json", "--shard", &shard];
            let run = run(&place.path("cache"), &[&arguments[..], more].concat());
            assert_eq!(run.code, 0, "an empty part is no failure: {}", run.stderr);
            let result = run.json();
            for operation in result["operations"].as_array().unwrap() {
                found.push((format!("{}:{}", operation["op_id"], operation["call_key"]), part));
            }
        }
        found.sort();
        found
    };
    let all = planned("module.hlo.txt", &[]);
    assert_eq!(all.len(), 4);
    assert_eq!(planned("module.stablehlo.mlir", &[]), all, "the other form lists labels in another order");
    let few = planned("module.hlo.txt", &["--only", "blocked_matmul@v1"]);
    assert!(few.len() == 2 && few.iter().all(|call| all.contains(call)), "{few:?}");
    assert!(!place.path("cache").exists());
}

#[test]
fn a_label_that_nobody_recorded_is_told_by_one_part() {
    let place = Place::new();
    copy_folder(&example().join("registry"), &place.path("registry"));
    for folder in fs::read_dir(place.path("registry/invocations")).unwrap().map(|item| item.unwrap().path()) {
        if folder.file_name().unwrap().to_str().unwrap().contains("entropy") {
            fs::remove_dir_all(folder).unwrap();
        }
    }
    let mut own = example_variables();
    own.insert("REGISTRY".into(), place.path("registry").display().to_string());
    let codes: Vec<i32> = (0..3)
        .map(|part| {
            let tune =
                format!("autotune-lowered \"$MODULE\" --registry \"$REGISTRY\" --shard {part}/3 --cache part-{part}");
            place.shell(&tune, &own).output().unwrap().status.code().unwrap()
        })
        .collect();
    assert_eq!(codes.iter().filter(|code| **code == 1).count(), 1, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 2, "{codes:?}");
    // the recipe's part still ends as done, with a message: otherwise a queue would retry for ever
    let talk =
        all_at_once((0..3).map(|part| place.shell(&format!("examples/fleet/tune-part.sh {part} 3"), &own)).collect());
    assert_eq!(talk.iter().filter(|talk| talk.contains("trying again would not help")).count(), 1, "{talk:?}");
}

/// A queue's signals to a job whose time is up.
#[test]
fn a_part_that_is_ended_lets_the_tuner_end() {
    let place = Place::new();
    // a shell could lose a signal between its check and its wait
    let stub = "exec python3 -c 'import signal, sys\n\
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n\
        print(\"started\", flush=True)\n\
        signal.sigwait([signal.SIGTERM])\n\
        print(\"ended\", flush=True)\n\
        sys.exit(130)'";
    place.program("autotune-lowered", stub);
    let mut child = place.shell("exec examples/fleet/tune-part.sh 0 1", &example_variables()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("started"));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    assert_eq!(lines.next().as_deref(), Some("ended"));
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// A queue that runs each task at once, like Slurm: from a copy of the script, in the folder of its submission.
const SBATCH: &str = r#"
array='' dependency=''
while [[ $1 == --* ]]; do
    case $1 in
        --array=*) array=${1#*=} ;;
        --dependency=afterok:*) dependency=${1##*:} ;;
        --parsable | --kill-on-invalid-dep=yes) ;;
        *) echo "unknown option $1" >&2; exit 2 ;;
    esac
    shift
done
[ -z "$dependency" ] || [ -e "queue/$dependency" ] || { echo "job $dependency did not succeed" >&2; exit 1; }
mkdir -p queue
script=$(mktemp)
cp "$1" "$script"
shift
id=$(($(ls queue | wc -l) + 100))
tasks=()
for range in ${array//,/ }; do
    tasks+=($(seq "${range%-*}" "${range#*-}"))
done
running=()
for task in "${tasks[@]:-none}"; do
    SLURM_JOB_ID=$id SLURM_ARRAY_TASK_ID=$task SLURM_ARRAY_TASK_COUNT=${#tasks[@]} bash "$script" "$@" >"queue-$id-$task" 2>&1 &
    running+=($!)
done
failed=0
for one in "${running[@]}"; do
    wait "$one" || failed=1
done
[ "$failed" = 1 ] || touch "queue/$id"
echo "$id"
"#;

#[test]
fn the_slurm_recipe_runs_its_parts_and_merges_them() {
    let place = Place::new();
    let whole = whole(&place);
    place.program("sbatch", SBATCH);
    let mut own = example_variables();
    own.insert("PARTS".into(), "4".into());
    let submit = "examples/fleet/slurm-submit.sh best.json";
    all_at_once(vec![place.shell(submit, &own)]);
    assert_eq!(place.entries_of_file("best.json"), whole);
    // parts of the array that run again
    fs::remove_dir_all(place.path("caches/part-3-of-4")).unwrap();
    own.insert("PART_LIST".into(), "1,3".into());
    all_at_once(vec![place.shell("examples/fleet/slurm-submit.sh again.json", &own)]);
    assert_eq!(place.entries_of_file("again.json"), whole);
}

fn yaml(name: &str) -> Yaml {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/fleet").join(name);
    let mut documents = YamlLoader::load_from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(documents.len(), 1, "{name}");
    documents.remove(0)
}

/// The command of a Job's only container, in a checkout whose shared volume is a folder.
fn container(place: &Place, job: &Yaml, index: Option<i64>) -> Command {
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    let mount = container["volumeMounts"][0]["mountPath"].as_str().unwrap();
    let shared = place.path("shared").display().to_string();
    let text = |yaml: &Yaml| yaml.as_str().unwrap().replace(mount, &shared);
    let mut own = BTreeMap::new();
    for variable in container["env"].as_vec().unwrap() {
        own.insert(text(&variable["name"]), text(&variable["value"]));
    }
    own.extend(index.map(|index| ("JOB_COMPLETION_INDEX".to_owned(), index.to_string())));
    let words: Vec<String> = container["command"].as_vec().unwrap().iter().map(text).collect();
    let [bash, c, command] = words.as_slice() else { panic!("{words:?}") };
    assert_eq!((bash.as_str(), c.as_str()), ("bash", "-c"));
    place.shell(command, &own)
}

#[test]
fn the_kubernetes_recipe_runs_its_indexes_and_merges_them() {
    let place = Place::new();
    let (tune, merge) = (yaml("kubernetes.yaml"), yaml("kubernetes-merge.yaml"));
    assert_eq!(tune["spec"]["completionMode"].as_str(), Some("Indexed"));
    let completions = tune["spec"]["completions"].as_i64().unwrap();
    for job in [&tune, &merge] {
        assert_eq!((job["apiVersion"].as_str(), job["kind"].as_str()), (Some("batch/v1"), Some("Job")));
        let pod = &job["spec"]["template"]["spec"];
        let claimed = pod["volumes"][0]["name"].as_str();
        assert!(claimed.is_some() && pod["containers"][0]["volumeMounts"][0]["name"].as_str() == claimed);
        assert_eq!(pod["restartPolicy"].as_str(), Some("Never"));
        let variables = pod["containers"][0]["env"].as_vec().unwrap();
        let parts = variables.iter().find(|variable| variable["name"].as_str() == Some("PARTS")).unwrap();
        assert_eq!(parts["value"].as_str().unwrap(), completions.to_string());
    }
    fs::create_dir(place.path("shared")).unwrap();
    all_at_once((0..completions).map(|index| container(&place, &tune, Some(index))).collect());
    let whole = whole(&place);
    let caches = (0..completions).map(|index| format!("shared/caches/part-{index}-of-{completions}"));
    assert_eq!(caches.flat_map(|cache| place.entries(&cache)).collect::<BTreeMap<_, _>>(), whole);
    all_at_once(vec![container(&place, &merge, None)]);
    assert_eq!(place.entries_of_file("shared/best.json"), whole);

    place.program("kubectl", "echo \"$*\" >>kubectl.log");
    all_at_once(vec![place.shell("examples/fleet/kubernetes-run.sh", &BTreeMap::new())]);
    let told = fs::read_to_string(place.path("kubectl.log")).unwrap();
    let verbs: Vec<&str> = told.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(verbs, ["delete", "apply", "wait", "delete", "apply", "wait"], "{told}");
    for file in told.lines().map(|line| line.rsplit(' ').next().unwrap()) {
        assert!(place.path(file).exists(), "{file}");
    }
}

/// The commands of a job's steps, without the installation, and with a matrix's values inserted.
fn steps(job: &Yaml, matrix: &BTreeMap<String, String>) -> Vec<String> {
    let mut commands = Vec::new();
    for step in job["steps"].as_vec().unwrap() {
        let Some(command) = step["run"].as_str() else {
            assert!(step["uses"].as_str().unwrap().starts_with("actions/"), "{step:?}");
            continue;
        };
        if step["name"].as_str() == Some("Install") {
            continue;
        }
        let mut command = command.to_owned();
        for (name, value) in matrix {
            command = command.replace(&format!("${{{{ matrix.{name} }}}}"), value);
        }
        assert!(!command.contains("${{"), "{command}");
        commands.push(command);
    }
    commands
}

fn words(yaml: &Yaml) -> Vec<String> {
    let word =
        |yaml: &Yaml| yaml.as_str().map(str::to_owned).or_else(|| yaml.as_i64().map(|number| number.to_string()));
    yaml.as_vec().unwrap().iter().map(|yaml| word(yaml).unwrap()).collect()
}

#[test]
fn the_github_recipe_tunes_a_matrix_merges_it_and_gates_a_pull_request() {
    let recipe = yaml("github.yml");
    let jobs = &recipe["jobs"];
    assert_eq!(jobs["merge"]["needs"].as_str(), Some("tune"));
    let environment: BTreeMap<String, String> = recipe["env"]
        .as_hash()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.as_str().unwrap().to_owned(), value.as_str().unwrap().to_owned()))
        .collect();
    let (devices, parts) =
        (words(&jobs["tune"]["strategy"]["matrix"]["device"]), words(&jobs["tune"]["strategy"]["matrix"]["part"]));
    assert_eq!(words(&jobs["check"]["strategy"]["matrix"]["device"]), devices);

    // every cell of the matrix is a runner with its own checkout; its upload is in a folder of its name
    let merger = Place::new();
    let mut everything = BTreeMap::new();
    for device in &devices {
        let (mut runners, mut commands) = (Vec::new(), Vec::new());
        for part in &parts {
            let runner = Place::new();
            let mut own = environment.clone();
            own.insert("TIMER".into(), format!("replay:{}", runner.recording(device).display()));
            let matrix = variables(&[("device", device), ("part", part)]);
            let [tune] = steps(&jobs["tune"], &matrix).try_into().unwrap();
            commands.push(runner.shell(&tune, &own));
            runners.push((runner, part));
        }
        all_at_once(commands);
        for (runner, part) in runners {
            let cache = format!("caches/part-{part}-of-{}", parts.len());
            everything.extend(runner.entries(&cache));
            copy_folder(&runner.path("caches"), &merger.path(&format!("caches/{device}-{part}")));
        }
    }
    assert_eq!(everything.len(), 4 * devices.len(), "four operations on each device");
    let [merge] = steps(&jobs["merge"], &BTreeMap::new()).try_into().unwrap();
    all_at_once(vec![merger.shell(&merge, &environment)]);
    assert_eq!(merger.entries_of_file(&environment["TUNED"]), everything);

    // the pull request: each device measures the committed configs again
    for (device, slower, expected) in [(&devices[0], false, true), (&devices[1], true, false)] {
        let runner = Place::new();
        fs::copy(merger.path(&environment["TUNED"]), runner.path(&environment["TUNED"])).unwrap();
        let recording = runner.recording(device);
        if slower {
            let text = fs::read_to_string(&recording).unwrap();
            fs::write(&recording, text.replace("[5000000,5001000,4999000,5000500]", "[7000000]")).unwrap();
        }
        let mut own = environment.clone();
        own.insert("TIMER".into(), format!("replay:{}", recording.display()));
        let [import, check] = steps(&jobs["check"], &variables(&[("device", device)])).try_into().unwrap();
        all_at_once(vec![runner.shell(&import, &own)]);
        let output = runner.shell(&check, &own).output().unwrap();
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.success(), expected, "{talk}");
        assert_eq!(talk.contains("::error file=examples/transformer/module.hlo.txt,line="), slower, "{talk}");
        assert!(fs::read_to_string(runner.path("check.xml")).unwrap().contains("<testsuites"));
    }
}
