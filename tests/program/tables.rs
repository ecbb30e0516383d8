//! Tables as inputs, by `gpux run` and over HTTP.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value as Json, json};

use crate::child::{self, StartWithLimit as _};
use crate::digits::{gpux, stdout};
use crate::test_server::Server;

/// Gives its three numbers back.
const PIPELINE: &str = "name: wine\nversion: 1.0.0
inputs: { x: { type: float32, shape: [3]COLUMNS } }
pipeline: [{ json-template: { template: { x: \"{{x}}\" }, out: y } }]
";

struct Folder(tempfile::TempDir);

impl Folder {
    /// A folder with the pipeline, whose input has these options, too.
    fn new(columns: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("gpux.yml"), PIPELINE.replace("COLUMNS", columns)).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, table: &[u8], options: &[&str]) -> Output {
        std::fs::write(self.path("table.csv"), table).unwrap();
        let (folder, table) = (self.path(""), self.path("table.csv"));
        let arguments = ["run", folder.to_str().unwrap(), "--file", table.to_str().unwrap()];
        gpux(&[&arguments, options].concat())
    }

    /// The numbers of each row.
    fn rows(&self, table: &[u8], options: &[&str]) -> Vec<Json> {
        let lines = stdout(&self.run(table, options));
        lines.lines().map(|line| serde_json::from_str::<Json>(line).unwrap()["outputs"]["y"]["x"].clone()).collect()
    }

    fn error(&self, table: &[u8], options: &[&str]) -> String {
        let output = self.run(table, options);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }
}

const NAMED: &str = ", columns: [alcohol, malic acid, ash]";

#[test]
fn columns_are_matched_by_name() {
    let named = Folder::new(NAMED);
    let expected = [json!([14.0, 1.5, 2.25]), json!(["NaN", 2.0, 3.0])];
    // `DataFrame.to_csv` with its defaults: an index, empty cells for what is missing.
    let pandas = b",ash,alcohol,malic acid\n0,2.25,14.0,1.5\n1,3.0,,2.0\n";
    assert_eq!(named.rows(pandas, &[]), expected);
    let utf_16 = "\u{feff}malic acid;ash;alcohol\r\n1,5;2,25;14\r\n2;3;NA\r\n";
    let utf_16: Vec<u8> = utf_16.encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(named.rows(&utf_16, &[]), expected);
    let extra = b"ash,target,alcohol,malic acid\n2.25,x,14.0,1.5\n3.0,y,,2.0\n";
    assert!(named.error(extra, &[]).contains("no input takes the column `target`"));
    assert_eq!(named.rows(extra, &["--extra-columns", "ignore"]), expected);
    assert_eq!(Folder::new(&format!("{NAMED}, extra: ignore")).rows(extra, &[]), expected);
    assert_eq!(named.rows(b"14,1.5,2.25\n,2,3\n", &["--header", "absent"]), expected);
    let wrong = named.error(b"alcohol,malic acid,ash\n14,1.5,2.25\n14,dry,2.25\n", &[]);
    assert!(wrong.contains("line 3, column `malic acid`: takes float32 elements"), "{wrong}");
    for (columns, why) in [
        (", columns: [alcohol, ash]", "`x` has 3 elements, but `columns` names 2"),
        (", columns: [a, b, a]", "`columns` of `x` has `a` twice"),
    ] {
        let output = Folder::new(columns).run(b"", &[]);
        assert!(String::from_utf8_lossy(&output.stderr).contains(why), "{output:?}");
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn warns_where_columns_are_not_checked() {
    let unnamed = Folder::new("");
    let output = unnamed.run(b"ash,alcohol,hue\n1,2,3\n", &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("columns: [ash, alcohol, hue]"), "{said}");
    assert!(unnamed.error(b"0,1,2\n.5,.6,.7\n", &[]).contains("--header present"));
    assert_eq!(unnamed.rows(b"0,1,2\n.5,.6,.75\n", &["--header", "present"]), [json!([0.5, 0.6, 0.75])]);
}

#[test]
fn empty_inputs_replace_earlier_outputs() {
    let folder = Folder::new(NAMED);
    let header = b"alcohol,malic acid,ash\n";
    for (name, empty) in [("day.csv", "source,y,error\n"), ("day.json", "[]\n"), ("day.jsonl", ""), ("day.txt", "")] {
        let output = folder.path(name);
        std::fs::write(&output, "yesterday").unwrap();
        let run = folder.run(header, &["--output", output.to_str().unwrap()]);
        assert!(run.status.success(), "{run:?}");
        assert!(String::from_utf8_lossy(&run.stderr).contains("the input has 0 rows"), "{run:?}");
        assert_eq!(std::fs::read_to_string(&output).unwrap(), empty, "{name}");
    }
    for lines in ["empty.jsonl", "empty.ndjson"] {
        std::fs::write(folder.path(lines), "\n").unwrap();
        std::fs::write(folder.path("day.csv"), "yesterday").unwrap();
        let [pipeline, lines, day] = ["", lines, "day.csv"].map(|name| folder.path(name).display().to_string());
        let run = gpux(&["run", &pipeline, "--file", &lines, "--output", &day]);
        assert!(String::from_utf8_lossy(&run.stderr).contains("the input has 0 rows"), "{run:?}");
        assert_eq!(std::fs::read_to_string(&day).unwrap(), "source,y,error\n");
    }
}

/// Where no file may grow, a result cannot be written.
#[cfg(unix)]
#[test]
fn a_failed_write_leaves_no_empty_file() {
    let folder = Folder::new(NAMED);
    let run = |output: &Path| {
        let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" run \"$1\" --input '[1, 2, 3]' --output \"$2\"";
        let program = env!("CARGO_BIN_EXE_gpux");
        let mut command = child::command("sh");
        command.args(["-c", script, program]).arg(folder.path("")).arg(output).run()
    };
    let output = folder.path("result.json");
    let failed = run(&output);
    assert!(String::from_utf8_lossy(&failed.stderr).contains("cannot write"), "{failed:?}");
    assert_eq!(failed.status.code(), Some(1));
    assert!(!output.exists());
}

#[test]
fn predict_reads_tables() {
    let (named, unnamed) = (Folder::new(NAMED), Folder::new(""));
    let text = |folder: &Folder| std::fs::read_to_string(folder.path("gpux.yml")).unwrap();
    std::fs::write(unnamed.path("gpux.yml"), text(&unnamed).replace("name: wine", "name: unnamed")).unwrap();
    let server = Server::start(&[named.path("").to_str().unwrap(), unnamed.path("").to_str().unwrap()]);
    let ask = |name: &str, kind: &str, body: &str| {
        server.ask("POST", &format!("/pipelines/{name}/predict"), &[&format!("content-type: {kind}")], body.as_bytes())
    };
    let rows = |name: &str, kind: &str, body: &str| ask(name, kind, body).with_status(200);
    let one = json!([{"y": {"x": [14.0, "NaN", 2.25]}}]);
    assert_eq!(rows("wine", "text/csv", "ash,alcohol,malic acid\n2.25,14,\n"), one);
    assert_eq!(rows("wine", "text/csv; charset=utf-8; header=absent", "14,,2.25\n"), one);
    assert_eq!(rows("wine", "text/tab-separated-values", "ash\talcohol\tmalic acid\n2.25\t14\tNA\n"), one);
    assert_eq!(rows("unnamed", "text/csv", "14,,2.25\n"), one);
    let mixed = rows("wine", "text/csv", "ash,alcohol,malic acid\n2.25,14,\n1,2,dry\n");
    assert_eq!(mixed[0], one[0]);
    assert!(mixed[1]["message"].as_str().unwrap().contains("line 3, column `malic acid`"), "{mixed}");
    assert_eq!(rows("wine", "text/csv", "ash,alcohol,malic acid\n"), json!([]));
    assert!(ask("unnamed", "text/csv", "ash,alcohol,hue\n1,2,3\n").error(400).contains("header=absent"));
    assert!(ask("wine", "text/csv", "ash,alcohol\n1,2\n").error(400).contains("no column `malic acid`"));
    assert!(ask("wine", "text/csv; header=maybe", "1,2,3\n").error(415).contains("`present` or `absent`"));
    assert!(ask("wine", "text/csv", &"1,2,3\n".repeat(10_001)).error(400).contains("header=absent"));
    let many = ask("wine", "text/csv; header=absent", &"1,2,3\n".repeat(10_001));
    assert!(many.error(400).contains("at most 10000 rows"));
    // The same in JSON.
    assert_eq!(ask("wine", "application/json", r#"{"x": [14, null, 2.25]}"#).with_status(200), one[0]);
}

#[test]
fn new_pipeline_writes_the_columns_of_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("train.csv", "height;weight;2019\n1,5;2;3\n");
    write("other.csv", "2019,height,weight\n3,1.5,2\n");
    write("long.csv", "a,b,c,target\n");
    let (model, train) = ("tests/models/flip-float32.onnx", path("train.csv"));
    let new = |name: &str, table: &str| {
        let (made, table) = (path(name), path(table));
        gpux(&["new", "pipeline", &made, "--model", model, "--task", "table", "--columns", &table])
    };
    stdout(&new("made", "train.csv"));
    let text = std::fs::read_to_string(folder.path().join("made/gpux.yml")).unwrap();
    assert!(text.contains("columns: [\"height\",\"weight\",\"2019\"]"), "{text}");
    let outputs = |table: &str| {
        let line = stdout(&gpux(&["run", &path("made"), "--file", table, "--format", "jsonl"]));
        serde_json::from_str::<Json>(&line).unwrap()["outputs"].clone()
    };
    assert_eq!(outputs(&train), outputs(&path("other.csv")));
    let refused = new("refused", "long.csv");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("the table has 4 columns, but the model takes"));
    assert!(!refused.status.success() && !folder.path().join("refused").exists());
}
