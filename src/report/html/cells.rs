//! The parts of a table that can be sorted. The roles keep it a table where the style lays it out differently.

use maud::{Markup, html};

use super::axis::RatioAxis;

/// Draws a table with the markup of its headings and rows.
pub(super) fn table(class: &str, caption: &str, headings: &Markup, rows: &Markup) -> Markup {
    html! {
        table class=(class) role="table" {
            caption.unseen { (caption) }
            thead role="rowgroup" { tr role="row" { (headings) } }
            tbody role="rowgroup" { (rows) }
        }
    }
}

/// Draws the heading of a column by which the script sorts.
pub(super) fn heading(index: usize, name: &str, is_number: bool) -> Markup {
    let kind = if is_number { "number" } else { "text" };
    html! {
        th role="columnheader" scope="col" class=[is_number.then_some(kind)] data-column=(index) data-kind=(kind) {
            span.label { (name) }
        }
    }
}

/// Draws the heading of a column of strips: their axis.
pub(super) fn strips_heading(name: &str, axis: &RatioAxis) -> Markup {
    html! { th.strips role="columnheader" { span.unseen { (name) } (axis.numbers()) } }
}

/// Draws the first cell of a row: a name, a link to its section where it has one, and what stands below it.
pub(super) fn name_cell(name: &str, section: Option<usize>, under: &Markup) -> Markup {
    html! {
        th role="rowheader" scope="row" data-value=(name) {
            @match section {
                Some(number) => a.op href={"#op-" (number)} { (name) },
                None => span.op { (name) },
            }
            small { (under) }
        }
    }
}

/// Draws a status with the class that colours it, and what more is to say.
pub(super) fn status_cell(status: &str, class: &str, more: Option<&str>) -> Markup {
    html! {
        td role="cell" data-value=(status) {
            span class={"badge " (class)} { (status) }
            @if let Some(more) = more { " " small { (more) } }
        }
    }
}

/// Draws a number as text, its exact value for sorting, and what stands beside it.
pub(super) fn number_cell(name: &str, value: Option<f64>, text: &str, beside: Option<&str>) -> Markup {
    html! {
        td.number role="cell" data-name=(name) data-value=[value] {
            (text) @if let Some(beside) = beside { " " small { (beside) } }
        }
    }
}

/// Draws a cell of one word.
pub(super) fn text_cell(name: &str, text: &str) -> Markup {
    html! { td role="cell" data-name=(name) data-value=(text) { (text) } }
}
