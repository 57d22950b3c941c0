package fleetdb

import (
	"encoding/json"
	"fmt"
	"time"
)

// micros and moment turn times into what the tables hold, and back.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func moment(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

// text returns the JSON of v for columns that are not selected by; empty for a nil v.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("roster: %v", err)) // values of this program always have a JSON form
	}
	if s := string(b); s != "null" {
		return s
	}
	return ""
}

func parse[T any](text string) (v T, err error) {
	if text == "" {
		return v, nil
	}
	return v, json.Unmarshal([]byte(text), &v)
}

// length is how long d takes, as the tables hold it: nanoseconds.
func length(d time.Duration) int64 { return int64(d) }
