package report

import (
	"encoding/json"
	"io"
)

// WriteJSON writes the whole report as one object.
func WriteJSON(w io.Writer, r Report) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	return enc.Encode(r)
}
