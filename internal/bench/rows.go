package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/decamp/decamp/internal/fault"
)

// ReadRows reads a JSON array of rows, or one JSON object after the other. An unknown
// field is an error, because it may be a misspelt one.
func ReadRows(r io.Reader) ([]Row, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if first := bytes.TrimLeft(text, " \t\r\n"); len(first) > 0 && first[0] == '[' {
		var rows []Row
		err := decodeAll(text, func(d *json.Decoder) error {
			if rows != nil {
				return errors.New("something follows the list")
			}
			rows = []Row{}
			return d.Decode(&rows)
		})
		return checkRows(rows, err)
	}
	var rows []Row
	err = decodeAll(text, func(d *json.Decoder) error {
		var row Row
		if err := d.Decode(&row); err != nil {
			return err
		}
		rows = append(rows, row)
		return nil
	})
	return checkRows(rows, err)
}

// decodeAll calls next until the text ends. Errors contain the line number.
func decodeAll(text []byte, next func(*json.Decoder) error) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	for {
		rest := text[d.InputOffset():]
		// The error is reported for the line at which the value starts.
		at := len(text) - len(bytes.TrimLeft(rest, " \t\r\n"))
		switch err := next(d); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("line %d: %w", 1+bytes.Count(text[:at], []byte("\n")), err)
		}
		if len(bytes.TrimSpace(text[d.InputOffset():])) == 0 {
			return nil
		}
	}
}

// checkRows returns rows, or an error if err is not nil or a row is invalid.
func checkRows(rows []Row, err error) ([]Row, error) {
	if err != nil {
		return nil, err
	}
	for i, r := range rows {
		if err := r.Check(); err != nil {
			return nil, fmt.Errorf("row %d: %w", i+1, err)
		}
	}
	return rows, nil
}

// LoadRows reads a file of rows.
func LoadRows(path string) ([]Row, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.Wrap(fault.NotFound, err)
	}
	defer f.Close() // only read
	rows, err := ReadRows(f)
	if err != nil {
		return nil, fault.New(fault.Invalid, "read %s: %w", path, err)
	}
	return rows, nil
}
