//! From configs as they come to points on a grid.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::space::{MAX_DEPTH, MAX_PARAMETERS, MAX_POINTS, MAX_VALUES, NoSpace, Parameter, Space};
use crate::config::Config;

impl Space {
    /// The space of these configs, numbered in their order; their parameters are derived from them.
    ///
    /// # Errors
    /// If there is no config, one is listed twice, or there are more than [`MAX_POINTS`].
    pub fn new(configs: impl IntoIterator<Item = Config>) -> Result<Self, NoSpace> {
        let mut columns = Columns::default();
        for config in configs {
            columns.add(&config)?;
        }
        columns.into_space()
    }
}

/// Configs read so far, column by column.
#[derive(Default)]
pub(super) struct Columns {
    paths: HashMap<Vec<String>, usize>,
    columns: Vec<Column>,
    rows: usize,
}

#[derive(Default)]
struct Column {
    path: Vec<String>,
    /// Values' numbers by their canonical text.
    known: HashMap<String, u16>,
    values: Vec<Value>,
    /// For each row the value's number and 1, or 0.
    rows: Vec<u16>,
}

impl Columns {
    pub(super) fn add(&mut self, config: &Config) -> Result<(), NoSpace> {
        if self.rows == MAX_POINTS {
            return Err(NoSpace::TooLarge);
        }
        self.add_object(config.as_map(), &mut Vec::new())?;
        self.rows += 1;
        Ok(())
    }

    fn add_object(&mut self, fields: &Map<String, Value>, path: &mut Vec<String>) -> Result<(), NoSpace> {
        if path.len() == MAX_DEPTH {
            return Err(NoSpace::TooWide);
        }
        for (name, value) in fields {
            path.push(name.clone());
            match value {
                Value::Object(inner) if !inner.is_empty() => self.add_object(inner, path)?,
                value => self.add_value(path, value)?,
            }
            path.pop();
        }
        Ok(())
    }

    fn add_value(&mut self, path: &[String], value: &Value) -> Result<(), NoSpace> {
        let place = match self.paths.get(path) {
            Some(&place) => place,
            None if self.columns.len() == MAX_PARAMETERS => return Err(NoSpace::TooWide),
            None => {
                self.paths.insert(path.to_vec(), self.columns.len());
                self.columns.push(Column { path: path.to_vec(), ..Column::default() });
                self.columns.len() - 1
            }
        };
        let Some(column) = self.columns.get_mut(place) else { return Err(NoSpace::TooWide) };
        let text = value.to_string();
        let number = match column.known.get(&text) {
            Some(&number) => number,
            None if column.values.len() == MAX_VALUES => return Err(NoSpace::TooWide),
            None => {
                let number = column.values.len() as u16;
                column.known.insert(text, number);
                column.values.push(value.clone());
                number
            }
        };
        column.rows.resize(self.rows, 0);
        column.rows.push(number + 1);
        Ok(())
    }

    pub(super) fn into_space(self) -> Result<Space, NoSpace> {
        let Self { mut columns, rows: count, .. } = self;
        if count == 0 {
            return Err(NoSpace::Empty);
        }
        let width = columns.len();
        let mut levels = vec![0; count * width];
        let mut parameters = Vec::new();
        for (place, column) in columns.iter_mut().enumerate() {
            column.rows.resize(count, 0);
            let lacking = column.rows.contains(&0);
            let ordered = !lacking && column.values.iter().all(Value::is_number);
            let mut order: Vec<usize> = (0..column.values.len()).collect();
            if ordered {
                let number = |&index: &usize| column.values.get(index).and_then(Value::as_f64).unwrap_or_default();
                order.sort_by(|a, b| number(a).total_cmp(&number(b)));
            }
            let mut level_of = vec![0_u16; column.values.len() + 1];
            let mut values: Vec<Option<Value>> = if lacking { vec![None] } else { Vec::new() };
            for index in order {
                if let Some(slot) = level_of.get_mut(index + 1) {
                    *slot = values.len() as u16;
                }
                values.push(column.values.get(index).cloned());
            }
            for (row, &number) in column.rows.iter().enumerate() {
                if let (Some(slot), Some(&level)) =
                    (levels.get_mut(row * width + place), level_of.get(usize::from(number)))
                {
                    *slot = level;
                }
            }
            parameters.push(Parameter { path: column.path.clone(), values, ordered });
        }
        let varying = (0..width).filter(|&at| parameters.get(at).is_some_and(|p| p.values.len() > 1)).collect();
        let mut space =
            Space { parameters, varying, levels, places: HashMap::with_capacity(count), count, sampled: false };
        for point in 0..count {
            let row: Box<[u16]> = space.levels(point).into();
            if space.places.insert(row, point as u32).is_some() {
                return Err(NoSpace::Twice(space.config(point).to_string()));
            }
        }
        Ok(space)
    }
}
