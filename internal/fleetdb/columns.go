package fleetdb

import (
	"encoding/json"
	"fmt"
	"time"
)

// toMicros returns t as the tables store it: microseconds since 1970, and 0 for the zero time.
func toMicros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// fromMicros is the inverse of toMicros. It returns times in UTC.
func fromMicros(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

// toJSON returns the JSON of v for columns that no query selects by; "" for a nil v.
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

// parseJSON is the inverse of toJSON. "" is the zero value.
func parseJSON[T any](text string) (v T, err error) {
	if text == "" {
		return v, nil
	}
	return v, json.Unmarshal([]byte(text), &v)
}

// toNanos returns d as the tables store durations: in nanoseconds.
func toNanos(d time.Duration) int64 { return int64(d) }
