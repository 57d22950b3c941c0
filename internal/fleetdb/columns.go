package fleetdb

import (
	"encoding/json"
	"fmt"
	"time"
)

// toMicros and moment turn times into what the tables hold, and back.
func toMicros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

// toJSON returns the JSON of v for columns that are not selected by; empty for a nil v.
func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("fleetdb: %v", err)) // values of this program always have a JSON form
	}
	if s := string(b); s != "null" {
		return s
	}
	return ""
}

func parseJSON[T any](text string) (v T, err error) {
	if text == "" {
		return v, nil
	}
	return v, json.Unmarshal([]byte(text), &v)
}

// toNanos is how long d takes, as the tables hold it: nanoseconds.
func toNanos(d time.Duration) int64 { return int64(d) }
