#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Cursor;

use serde_json::{Value as Json, json};

use super::*;
use crate::{Dim, ElementType, Kind, Plan, PlanBuilder, PlanInput, Port, TableColumns, TensorKind, to_json};

fn tensor(element: ElementType, columns: usize) -> Kind {
    Kind::Tensor(TensorKind::shaped(element, [Dim::Dynamic, Dim::Fixed(columns)]))
}

fn input(name: &str, kind: Kind, columns: &[&str]) -> PlanInput {
    let names = columns.iter().map(|&name| name.to_owned()).collect();
    let columns = (!columns.is_empty()).then_some(TableColumns { names, ignores_extra: false });
    PlanInput { port: Port::new(name, kind), default: None, columns }
}

fn plan(inputs: Vec<PlanInput>) -> Plan {
    PlanBuilder::new(Some(inputs)).finish(None).unwrap()
}

/// What the rows are to the pipeline: JSON of the inputs, or the message.
fn rows_of(plan: &Plan, options: TableOptions, text: impl Into<Vec<u8>>) -> Vec<Result<Json, String>> {
    let reader = || plan.signature().reader(&[]);
    let mut table = match Table::open(Cursor::new(text.into()), options, reader()) {
        Ok(table) => table,
        Err(error) => return vec![Err(error.to_string())],
    };
    let mut rows = Vec::new();
    while let Some(row) = table.next(reader()) {
        let object = |row: Request| row.into_iter().map(|(name, value)| (name, to_json(&value))).collect();
        rows.push(row.map(object).map_err(|error| error.to_string()));
    }
    rows
}

fn one(kind: Kind, text: &str) -> Vec<Result<Json, String>> {
    rows_of(&plan(vec![input("x", kind, &[])]), TableOptions::default(), text)
}

fn pair(text: &str) -> Vec<Result<Json, String>> {
    one(tensor(ElementType::Float32, 2), text)
}

const HEADER: TableOptions = TableOptions { delimiter: None, has_header: Some(true), ignores_extra: false };
const NO_HEADER: TableOptions = TableOptions { delimiter: None, has_header: Some(false), ignores_extra: false };

#[test]
fn cells_in_order_are_the_elements_of_one_tensor() {
    let rows = [Ok(json!({"x": [[1.0, 2.5]]})), Ok(json!({"x": [[-3.0, 0.5]]}))];
    for text in [
        "1,2.5\n-3,.5\n",
        "a,b\n1,2.5\n-3,.5\n",
        "1;2,5\r\n-3;0,5",
        "a\tb\n1\t2.5\n-3\t+5e-1\n",
        "sep=;\na;b\n1;2.5\n-3;.5",
    ] {
        assert_eq!(pair(text), rows, "{text}");
    }
    assert_eq!(
        rows_of(&plan(vec![input("x", tensor(ElementType::Float32, 2), &[])]), HEADER, "9,9\n1,2.5\n-3,.5"),
        rows
    );
}

#[test]
fn rejects_first_rows_that_may_be_a_header_or_not() {
    let uncertain = |kind: Kind, text: &str| {
        let found = one(kind, text);
        assert!(matches!(found.as_slice(), [Err(why)] if why.contains("`--header present`")), "{text}: {found:?}");
    };
    // `DataFrame.to_csv(index=False)` without names, wavelengths, texts, a column named by a number.
    uncertain(tensor(ElementType::Float32, 2), "0,1\n0.5,0.6\n0.7,0.8\n");
    uncertain(tensor(ElementType::Float32, 1), "0\n0.5\n");
    uncertain(tensor(ElementType::Float32, 8), "400,410,420,430,440,450,460,470\n.1,.2,.3,.4,.5,.6,.7,.8\n");
    uncertain(tensor(ElementType::String, 2), "color,size\nred,big\n");
    uncertain(tensor(ElementType::Float32, 2), "age,2020\n1,2\n");
    let text = plan(vec![input("x", tensor(ElementType::String, 2), &[])]);
    assert_eq!(rows_of(&text, HEADER, "color,size\nred,"), [Ok(json!({"x": [["red", ""]]}))]);
    assert_eq!(rows_of(&text, NO_HEADER, "color,size\nred,NA").len(), 2);
    // These are rows.
    assert_eq!(one(tensor(ElementType::Int64, 1), "0\n1\n").len(), 2);
    assert_eq!(pair("63,145\n41.5,130\n").len(), 2);
}

#[test]
fn missing_numbers_are_nan() {
    let nan = || Json::from("NaN");
    let rows = [Ok(json!({"x": [[1.0, nan()]]})), Ok(json!({"x": [[nan(), 2.0]]})), Ok(json!({"x": [[3.0, nan()]]}))];
    assert_eq!(pair("a,b\n1,\nNA,2\n3,NaN\n"), rows);
    assert_eq!(pair("1,\nnull,2\n3,<NA>\n"), rows);
    let whole = one(tensor(ElementType::Int64, 2), "a,b\n1,\n");
    assert_eq!(
        whole,
        [Err("input `x`: line 2, column `b`: it is empty, and tensor int64 has no value for what is missing".into())]
    );
    let columns = plan(vec![
        input("age", tensor(ElementType::Float32, 1), &[]),
        input("city", tensor(ElementType::String, 1), &[]),
        PlanInput { default: Some("x".into()), ..input("note", Kind::Text, &[]) },
    ]);
    let rows = rows_of(&columns, TableOptions::default(), "age,city,note\n,Rome,\n45,,NA\n");
    let expected =
        [json!({"age": [[nan()]], "city": [["Rome"]]}), json!({"age": [[45.0]], "city": [[""]], "note": "NA"})];
    assert_eq!(rows, expected.map(Ok));
}

#[test]
fn columns_are_found_by_name() {
    let wine = |ignores_extra| {
        let mut input = input("x", tensor(ElementType::Float32, 2), &["alcohol", "ash"]);
        input.columns.as_mut().unwrap().ignores_extra = ignores_extra;
        plan(vec![input])
    };
    let row = [Ok(json!({"x": [[14.0, 2.5]]}))];
    let read = |text: &str| rows_of(&wine(false), TableOptions::default(), text);
    assert_eq!(read("alcohol,ash\n14,2.5\n"), row);
    assert_eq!(read("ash,alcohol\n2.5,14\n"), row);
    // The index that pandas writes.
    assert_eq!(read(",ash,alcohol\n0,2.5,14\n"), row);
    let why = |text: &str| read(text).remove(0).unwrap_err();
    assert!(why("ash,alcohol,target\n2.5,14,1\n").contains("no input takes the column `target`"));
    assert!(why("ash,hue\n2.5,14\n").contains("there is no column `alcohol`; the table has `ash`, `hue`"));
    assert!(why("ash,alcohol,ash\n2.5,14,1\n").contains("several columns `ash`"));
    assert!(why("14,2.5\n").contains("`--header absent`"));
    assert!(
        why("ash,alcohol\n2.5,dry\n").contains("line 2, column `alcohol`: takes float32"),
        "{}",
        why("ash,alcohol\n2.5,dry\n")
    );
    assert!(why("ash,alcohol\n2.5\n").contains("line 2: the row has another number of cells (1)"));
    assert_eq!(rows_of(&wine(true), TableOptions::default(), "ash,target,alcohol\n2.5,x,14\n"), row);
    assert_eq!(
        rows_of(&wine(false), TableOptions { ignores_extra: true, ..HEADER }, "ash,target,alcohol\n2.5,x,14\n"),
        row
    );
    assert_eq!(rows_of(&wine(false), NO_HEADER, "14,2.5\n"), row);
    let unchecked = |text: &str| {
        let plan = plan(vec![input("x", tensor(ElementType::Float32, 2), &[])]);
        let table = Table::open(Cursor::new(text.to_owned()), TableOptions::default(), plan.signature().reader(&[]));
        table.unwrap().unchecked_header().map(<[String]>::to_vec)
    };
    assert_eq!(unchecked("ash,alcohol\n1,2\n").unwrap(), ["ash", "alcohol"]);
    assert_eq!(unchecked("1,2\n"), None);
}

#[test]
fn inputs_are_found_by_name() {
    let plan =
        plan(vec![input("age", tensor(ElementType::Float32, 1), &[]), input("ok", tensor(ElementType::Bool, 1), &[])]);
    let read = |text: &str| rows_of(&plan, TableOptions::default(), text);
    assert_eq!(read("ok,age\nTrue,1\n"), [Ok(json!({"age": [[1.0]], "ok": [[true]]}))]);
    let why = |text: &str| read(text).remove(0).unwrap_err();
    assert!(why("age,ok,id\n1,true,5\n").contains("no input takes the column `id`"));
    assert!(why("age,id\n1,5\n").contains("there is no column `ok`"));
    assert!(why("1,2\n").contains("are not inputs of the pipeline"));
    assert!(why("ok,age\nmaybe,1\n").contains("line 2, column `ok`"));
    assert_eq!(why(""), "there is nothing in it");
}

#[test]
fn reads_utf_16() {
    let text = "a,b\n1,2.5\nÄ😀,1\n";
    let units: Vec<u16> = text.encode_utf16().collect();
    for (mark, bytes) in [
        ([0xff, 0xfe], units.iter().flat_map(|unit| unit.to_le_bytes()).collect::<Vec<u8>>()),
        ([0xfe, 0xff], units.iter().flat_map(|unit| unit.to_be_bytes()).collect()),
    ] {
        let plan = plan(vec![input("x", tensor(ElementType::Float32, 2), &[])]);
        let rows = rows_of(&plan, TableOptions::default(), [mark.to_vec(), bytes.clone()].concat());
        assert_eq!(rows[0], Ok(json!({"x": [[1.0, 2.5]]})));
        assert!(rows[1].as_ref().unwrap_err().contains("Ä😀"), "{rows:?}");
        let cut = rows_of(&plan, TableOptions::default(), [&mark[..], &bytes[..bytes.len() - 1]].concat());
        assert!(cut.last().unwrap().as_ref().unwrap_err().contains("not UTF-16"), "{cut:?}");
    }
    let plan = plan(vec![input("x", tensor(ElementType::Float32, 2), &[])]);
    let latin = rows_of(&plan, TableOptions::default(), b"a,\xe4\n1,2\n");
    assert!(latin[0].as_ref().unwrap_err().contains("save the table as UTF-8"), "{latin:?}");
}

/// A surrogate pair across the boundary between two pieces.
#[test]
fn utf_16_pairs_are_not_torn() {
    for spaces in 8180..8200 {
        let text = format!("{}\u{1f600}", " ".repeat(spaces));
        let bytes: Vec<u8> = [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
        let mut read = String::new();
        text::open(Box::new(Cursor::new(bytes)), None).unwrap().reader.read_to_string(&mut read).unwrap();
        assert_eq!(read, text, "{spaces}");
    }
}
