// Package suggest finds the known word nearest to a misspelled one.
package suggest

import (
	"cmp"
	"slices"
	"strings"
)

// most is how many words are offered: more are a list to read, not a hint.
const most = 3

// Words returns up to three of words that are near to what, the nearest first, each once.
func Words(what string, words []string) []string {
	sorted := slices.Clone(words)
	slices.SortStableFunc(sorted, func(a, b string) int { return cmp.Compare(Distance(a, what), Distance(b, what)) })
	var near []string
	for _, w := range sorted {
		if len(near) < most && !slices.Contains(near, w) && isNear(w, what) {
			near = append(near, w)
		}
	}
	return near
}

// Word returns the one of a closed list of words that was meant, if what differs from it in
// half of its letters at most. Unlike Words it is for lists in which little looks alike.
func Word(what string, words []string) (string, bool) {
	if what == "" || len(words) == 0 {
		return "", false
	}
	nearest := slices.MinFunc(words, func(a, b string) int { return cmp.Compare(Distance(a, what), Distance(b, what)) })
	if Distance(nearest, what) > len(what)/2 {
		return "", false
	}
	return nearest, true
}

// isNear accepts a word that contains the input, or differs in a quarter of it.
func isNear(word, what string) bool {
	a, b := strings.ToLower(word), strings.ToLower(what)
	return b != "" && strings.Contains(a, b) || Distance(word, what) <= (len(what)+3)/4
}

// Distance is the number of edits between a and b, ignoring case (Levenshtein).
func Distance(a, b string) int {
	x, y := []rune(strings.ToLower(a)), []rune(strings.ToLower(b))
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i, r := range x {
		diagonal := row[0]
		row[0] = i + 1
		for j, q := range y {
			edit := diagonal
			if r != q {
				edit++
			}
			diagonal = row[j+1]
			row[j+1] = min(edit, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(y)]
}
