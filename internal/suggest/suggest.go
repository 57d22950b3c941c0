// Package suggest finds the known word nearest to a misspelled one.
package suggest

import (
	"cmp"
	"slices"
	"strings"
)

// maxWords is the number of words that Words returns at most: a longer list is no help.
const maxWords = 3

// Words returns the words that are near to what: at most maxWords, each once, the nearest first. It
// ignores case.
func Words(what string, words []string) []string {
	sorted := slices.Clone(words)
	slices.SortStableFunc(sorted, func(a, b string) int { return cmp.Compare(Distance(a, what), Distance(b, what)) })
	var near []string
	for _, w := range sorted {
		if len(near) < maxWords && !slices.Contains(near, w) && isNear(w, what) {
			near = append(near, w)
		}
	}
	return near
}

// Word returns the nearest of a closed list of words, if it differs from what in at most half of the
// letters of what. It is more tolerant than Words, because the words of such a list differ clearly.
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

// isNear reports whether word contains what, or differs from it in at most a quarter of its letters.
func isNear(word, what string) bool {
	a, b := strings.ToLower(word), strings.ToLower(what)
	return b != "" && strings.Contains(a, b) || Distance(word, what) <= (len(what)+3)/4
}

// Distance returns the number of edits between a and b, ignoring case (Levenshtein).
func Distance(a, b string) int {
	x, y := []rune(strings.ToLower(a)), []rune(strings.ToLower(b))
	// row[j] is the distance between the processed prefix of x and the first j runes of y: one
	// row of the matrix at a time, so memory is linear.
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i, r := range x {
		diagonal := row[0] // the element above and to the left
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
