package main

import (
	"io"
	"strings"
	"unicode/utf8"
)

// table is text in columns. Rows may be of different lengths.
type table struct {
	rows  [][]string
	right map[int]bool // columns that are aligned to the right: numbers
}

func newTable(header ...string) *table {
	return &table{rows: [][]string{header}, right: map[int]bool{}}
}

// alignRight selects the columns with numbers.
func (t *table) alignRight(columns ...int) {
	for _, c := range columns {
		t.right[c] = true
	}
}

func (t *table) addRow(cells ...string) { t.rows = append(t.rows, cells) }

// writeTo prints the rows, two blanks between columns and none at the end of a line.
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
