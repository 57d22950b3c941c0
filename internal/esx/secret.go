package esx

import "log/slog"

// Secret is a password. It prints as *** wherever it is formatted or logged.
type Secret string

const masked = "***"

// String returns ***, so that %v and %s do not tell.
func (Secret) String() string { return masked }

// GoString returns ***, so that %#v does not tell.
func (Secret) GoString() string { return masked }

// LogValue returns ***.
func (Secret) LogValue() slog.Value { return slog.StringValue(masked) }

// MarshalText returns ***, so that JSON does not tell.
func (Secret) MarshalText() ([]byte, error) { return []byte(masked), nil }
