package main

import (
	"io"
	"strings"
	"unicode/utf8"
)

// table is text in aligned columns. Rows may have different lengths.
type table struct {
	rows  [][]string   // cells by row; the first one is the header
	right map[int]bool // columns that are aligned to the right: numbers
}

// newTable returns a table with a header.
func newTable(header ...string) *table {
	return &table{rows: [][]string{header}, right: map[int]bool{}}
}

// alignRight aligns columns to the right, for numbers.
func (t *table) alignRight(columns ...int) {
	for _, c := range columns {
		t.right[c] = true
	}
}

// addRow appends a row.
func (t *table) addRow(cells ...string) { t.rows = append(t.rows, cells) }

// writeTo writes the rows, with two spaces between columns and none at the end of a line.
func (t *table) writeTo(w io.Writer) {
	widths := t.columnWidths()
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if t.right[i] {
				cell, pad = pad+cell, ""
			}
			line.WriteString(cell + pad + "  ")
		}
		io.WriteString(w, strings.TrimRight(line.String(), " ")+"\n")
	}
}

// columnWidths returns the width of each column in characters.
func (t *table) columnWidths() []int {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}
