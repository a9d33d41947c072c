//! Cells as text: for programs, and for display.

use super::table::Cell;

/// Machine-readable form.
pub(super) fn plain(cell: &Cell) -> String {
    match cell {
        Cell::Empty => String::new(),
        Cell::Number(number) => number.to_string(),
        Cell::Signed(number) => number.to_string(),
        Cell::Real(number) => number.to_string(),
        Cell::Decimal(number, decimals) => format!("{number:.decimals$}"),
        Cell::Text(text) => text.clone(),
    }
}

/// Display form: with a comma between thousands; fractions are rounded to significant digits.
pub(super) fn grouped(cell: &Cell) -> String {
    if let Cell::Real(number) = *cell {
        return rounded(number);
    }
    let text = plain(cell);
    if !matches!(cell, Cell::Number(_) | Cell::Decimal(..)) {
        return text;
    }
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

/// Three decimal places; four digits for a number below 1.
fn rounded(number: f64) -> String {
    let size = number.abs();
    if size != 0.0 && !(1e-4..1e15).contains(&size) {
        return format!("{number:.3e}");
    }
    let zeros = if size < 1.0 && size > 0.0 { -size.log10().floor() as usize } else { 0 };
    format!("{number:.*}", 3 + zeros).trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_see_the_digits_that_say_something_and_programs_all() {
        let numbers = [147.482_368_240_866_66, 5.015_891_666_666_667e-7, 0.0125, 2.0, 0.0, -0.333_333_333, 1.5e18];
        let shown = numbers.map(|number| grouped(&Cell::Real(number)));
        assert_eq!(shown, ["147.482", "5.016e-7", "0.0125", "2", "0", "-0.3333", "1.500e18"]);
        assert_eq!(plain(&Cell::Real(numbers[0])), "147.48236824086666");
    }
}
