package fleetdb

import (
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetkey"
)

// signer signs rows that other processes of the fleet act on, and verifies them.
type signer struct{ keys *fleetkey.Keys }

// sign returns the signature of fields for a use; "" without keys.
func (s signer) sign(use string, fields ...string) string {
	if s.keys == nil {
		return ""
	}
	return s.keys.Sign(use, fields...)
}

// noKeysError returns the fault.Denied for a process without a fleet key.
func noKeysError() error {
	return fault.New(fault.Denied, "this process has no fleet key").WithHint("start it with --fleet-key FILE")
}
