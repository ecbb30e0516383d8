//! Models that were valid before something in them changed: bytes, lengths, sizes, names, nesting.

use crate::dice::Dice;
use crate::leb128;

/// A way to damage a model.
pub type Damage = fn(&mut Dice, &[u8], &[Vec<u8>]) -> Vec<u8>;

/// Each way, with its name for people.
pub const ALL: [(&str, Damage); 8] = [
    ("bits flipped", bits),
    ("cut short", cut),
    ("bytes of another model", splice),
    ("lengths of fields", lengths),
    ("fields gone, doubled, moved", fields),
    ("absurd numbers (dimensions, types, versions)", numbers),
    ("other names and texts", texts),
    ("graphs within graphs", nested),
];

fn bits(dice: &mut Dice, model: &[u8], _: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = model.to_vec();
    for _ in 0..=dice.below(4) {
        let at = dice.below(bytes.len());
        bytes[at] ^= 1 << dice.below(8);
    }
    bytes
}

fn cut(dice: &mut Dice, model: &[u8], _: &[Vec<u8>]) -> Vec<u8> {
    model[..dice.below(model.len())].to_vec()
}

fn splice(dice: &mut Dice, model: &[u8], others: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = model.to_vec();
    let other = dice.pick(others);
    let (at, from) = (dice.below(bytes.len()), dice.below(other.len()));
    let end = (at + dice.below(64)).min(bytes.len());
    let len = dice.below(64).min(other.len() - from);
    drop(bytes.splice(at..end, other[from..from + len].iter().copied()));
    bytes
}

/// Changes the length in a field's header, but not its content.
fn lengths(dice: &mut Dice, model: &[u8], _: &[Vec<u8>]) -> Vec<u8> {
    changed(dice, model, |dice, field| {
        if let Content::Bytes(_) | Content::Message(_) = field.content {
            let len = encode(&field.content).len() as u64;
            let stated = [0, 1, len + 1, len.saturating_sub(1), len * 2, 1 << 31, u64::MAX >> 1, u64::MAX];
            field.stated = Some(*dice.pick(&stated));
        }
        Some(())
    })
}

fn fields(dice: &mut Dice, model: &[u8], _: &[Vec<u8>]) -> Vec<u8> {
    let Some(mut message) = parse(model, 0) else { return model.to_vec() };
    for _ in 0..=dice.below(3) {
        let list = somewhere(dice, &mut message);
        if list.is_empty() {
            continue;
        }
        let at = dice.below(list.len());
        match dice.below(3) {
            0 => drop(list.remove(at)),
            1 => list.push(list[at].clone()),
            _ => {
                let to = dice.below(list.len());
                list.swap(at, to);
            }
        }
    }
    encode(&Content::Message(message))
}

fn numbers(dice: &mut Dice, model: &[u8], _: &[Vec<u8>]) -> Vec<u8> {
    changed(dice, model, |dice, field| {
        let Content::Number(number) = &mut field.content else { return None };
        let absurd = [0, 1, u64::MAX, i64::MAX as u64, i64::MIN as u64, 1 << 31, 1 << 40, 255, 3_000_000_000];
        *number = *dice.pick(&absurd);
        Some(())
    })
}

fn texts(dice: &mut Dice, model: &[u8], _: &[Vec<u8>]) -> Vec<u8> {
    const TEXTS: [&[u8]; 9] =
        [b"", b"Loop", b"If", b"MatMul", b"x", b"../../../etc/passwd", b"\xff\xfe", b"a\0b", &[b'n'; 300]];
    changed(dice, model, |dice, field| {
        let Content::Bytes(bytes) = &mut field.content else { return None };
        *bytes = dice.pick(&TEXTS).to_vec();
        Some(())
    })
}

/// The model's graph as the branch of an `If` in a graph, and that in another, and so on.
fn nested(dice: &mut Dice, model: &[u8], _: &[Vec<u8>]) -> Vec<u8> {
    let Some(mut message) = parse(model, 0) else { return model.to_vec() };
    let Some(graph) = message.iter_mut().find(|field| field.number == 7) else { return model.to_vec() };
    let mut inner = encode(&graph.content);
    let most = if dice.once_in(4) { 3000 } else { 120 };
    let depth = 1 + dice.below(most);
    for _ in 0..depth {
        let mut attribute = bytes_field(1, b"then_branch");
        attribute.extend(bytes_field(6, &inner));
        attribute.extend([0xa0, 0x01, 5]);
        let mut node = bytes_field(1, b"condition");
        node.extend(bytes_field(2, b"y"));
        node.extend(bytes_field(4, b"If"));
        node.extend(bytes_field(5, &attribute));
        inner = bytes_field(1, &node);
        inner.extend(bytes_field(2, b"nested"));
    }
    // The outermost level keeps the model's inputs and outputs.
    let node = parse(&inner, 0).and_then(|fields| fields.into_iter().next());
    if let (Content::Message(fields), Some(node)) = (&mut graph.content, node) {
        fields.insert(0, node);
    }
    encode(&Content::Message(message))
}

#[derive(Clone)]
struct Field {
    number: u64,
    content: Content,
    /// a length that is not its own
    stated: Option<u64>,
}

#[derive(Clone)]
enum Content {
    Number(u64),
    Fixed(Vec<u8>),
    Bytes(Vec<u8>),
    Message(Vec<Field>),
}

/// Deeper, or larger, nothing is taken apart: weights may look like messages.
const DEPTH: usize = 9;
const LARGEST: usize = 1 << 16;

/// The fields of a message; texts that look like one are taken for one, which damages as well.
fn parse(mut bytes: &[u8], depth: usize) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = leb128::read(&mut bytes)?;
        let number = key >> 3;
        if !(1..64).contains(&number) {
            return None;
        }
        let content = match key & 7 {
            0 => Content::Number(leb128::read(&mut bytes)?),
            kind @ (1 | 5) => {
                let (fixed, rest) = bytes.split_at_checked(if kind == 1 { 8 } else { 4 })?;
                bytes = rest;
                Content::Fixed(fixed.to_vec())
            }
            2 => {
                let len = usize::try_from(leb128::read(&mut bytes)?).ok()?;
                let (inside, rest) = bytes.split_at_checked(len)?;
                bytes = rest;
                let message = depth < DEPTH && len > 1 && (len < LARGEST || depth < 2);
                let message = if message { parse(inside, depth + 1) } else { None };
                message.map_or_else(|| Content::Bytes(inside.to_vec()), Content::Message)
            }
            _ => return None,
        };
        fields.push(Field { number, content, stated: None });
    }
    Some(fields)
}

fn encode(content: &Content) -> Vec<u8> {
    match content {
        Content::Number(number) => leb128::write(*number),
        Content::Fixed(bytes) | Content::Bytes(bytes) => bytes.clone(),
        Content::Message(fields) => {
            let mut bytes = Vec::new();
            for field in fields {
                let inside = encode(&field.content);
                let kind = match &field.content {
                    Content::Number(_) => 0,
                    Content::Fixed(fixed) => {
                        if fixed.len() == 8 {
                            1
                        } else {
                            5
                        }
                    }
                    Content::Bytes(_) | Content::Message(_) => 2,
                };
                bytes.extend(leb128::write(field.number << 3 | kind));
                if kind == 2 {
                    bytes.extend(leb128::write(field.stated.unwrap_or(inside.len() as u64)));
                }
                bytes.extend(inside);
            }
            bytes
        }
    }
}

fn bytes_field(number: u64, bytes: &[u8]) -> Vec<u8> {
    [leb128::write(number << 3 | 2), leb128::write(bytes.len() as u64), bytes.to_vec()].concat()
}

/// Changes one to three fields, wherever they stand; `change` says whether it could.
fn changed(dice: &mut Dice, model: &[u8], change: fn(&mut Dice, &mut Field) -> Option<()>) -> Vec<u8> {
    let Some(mut message) = parse(model, 0) else { return model.to_vec() };
    for _ in 0..=dice.below(3) {
        for _ in 0..50 {
            let list = somewhere(dice, &mut message);
            if list.is_empty() {
                continue;
            }
            let at = dice.below(list.len());
            if change(dice, &mut list[at]).is_some() {
                break;
            }
        }
    }
    encode(&Content::Message(message))
}

/// The fields of some message within.
fn somewhere<'a>(dice: &mut Dice, fields: &'a mut Vec<Field>) -> &'a mut Vec<Field> {
    let inside: Vec<_> = (0..fields.len()).filter(|at| matches!(fields[*at].content, Content::Message(_))).collect();
    if inside.is_empty() || dice.once_in(5) {
        return fields;
    }
    let at = *dice.pick(&inside);
    match &mut fields[at].content {
        Content::Message(inner) => somewhere(dice, inner),
        _ => unreachable!("only messages were picked"),
    }
}
