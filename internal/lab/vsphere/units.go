package vsphere

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bytes is a size in bytes. In JSON it is a number, or a string with a binary unit: "64MiB", "8GiB",
// "6TiB".
type Bytes int64

// Duration is a time.Duration that JSON encodes as "20ms" or "30m".
type Duration time.Duration

// binaryUnits are the suffixes of Bytes.
var binaryUnits = []struct {
	suffix string
	shift  uint
}{{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}

// UnmarshalJSON decodes a number of bytes or a string with a unit.
func (b *Bytes) UnmarshalJSON(data []byte) error {
	var n int64
	if err := json.Unmarshal(data, &n); err == nil {
		*b = Bytes(n)
		return nil
	}
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("size %s: want a number or a string like \"8GiB\"", data)
	}
	v, err := parseBytes(s)
	*b = v
	return err
}

// parseBytes parses a size with an optional unit.
func parseBytes(s string) (Bytes, error) {
	digits, shift := s, uint(0)
	for _, u := range binaryUnits {
		if d, ok := strings.CutSuffix(s, u.suffix); ok {
			digits, shift = d, u.shift
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
	if err != nil || n < 0 || n > (1<<62)>>shift {
		return 0, fmt.Errorf("size %q: want a whole number with KiB, MiB, GiB or TiB", s)
	}
	return Bytes(n << shift), nil
}

// UnmarshalText parses a duration such as "250ms" or "30m".
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// MarshalText returns the form that UnmarshalText parses.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }
