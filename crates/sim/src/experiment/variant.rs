//! Variants of a model: the table of the file with some keys replaced.
//!
//! A variant is rendered back to TOML and parsed like any file, so that it is checked like any
//! file; what is wrong with it is reported where the replacement stands.

use toml::{Table, Value};

/// Replaces the value at a dotted `path` (`protect.pi.gain`, `replicas.0.servers`) in `table`.
/// Tables on the way are created where they are missing, elements of an array are not.
pub(super) fn replace(table: &mut Table, path: &str, value: Value) -> Result<(), String> {
    let (way, last) = match path.rsplit_once('.') {
        Some((way, last)) => (Some(way), last),
        None => (None, path),
    };
    let Some(way) = way else {
        table.insert(last.to_owned(), value);
        return Ok(());
    };
    let mut steps = way.split('.');
    let first = steps.next().unwrap_or_default();
    let mut at = table
        .entry(first.to_owned())
        .or_insert_with(|| Value::Table(Table::new()));
    for step in steps {
        at = enter(at, step).ok_or_else(|| format!("`{path}`: no `{step}` there"))?;
    }
    let place = enter(at, last).ok_or_else(|| format!("`{path}`: no `{last}` there"))?;
    *place = value;
    Ok(())
}

fn enter<'a>(value: &'a mut Value, step: &str) -> Option<&'a mut Value> {
    match value {
        Value::Table(table) => Some(
            table
                .entry(step.to_owned())
                .or_insert_with(|| Value::Table(Table::new())),
        ),
        Value::Array(array) => step.parse().ok().and_then(|at: usize| array.get_mut(at)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(text: &str, path: &str, value: impl Into<Value>) -> Result<String, String> {
        let mut table: Table = text.parse().unwrap();
        replace(&mut table, path, value.into())?;
        Ok(table.to_string())
    }

    #[test]
    fn keys_are_replaced_at_any_depth() {
        assert_eq!(replaced("a = 1", "a", 2).unwrap(), "a = 2\n");
        assert_eq!(
            replaced("[a.b]\nc = 1", "a.b.c", 2).unwrap(),
            "[a.b]\nc = 2\n"
        );
        assert_eq!(
            replaced("a = [{ b = 1 }]", "a.0.b", 2).unwrap(),
            "[[a]]\nb = 2\n"
        );
    }

    #[test]
    fn missing_tables_are_created_but_elements_are_not() {
        assert_eq!(replaced("", "a.b", 1).unwrap(), "[a]\nb = 1\n");
        assert_eq!(
            replaced("a = []", "a.0.b", 1).unwrap_err(),
            "`a.0.b`: no `0` there"
        );
        assert_eq!(
            replaced("a = 1", "a.b", 1).unwrap_err(),
            "`a.b`: no `b` there"
        );
    }
}
