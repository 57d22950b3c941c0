package fleetdb

import (
	"context"
	"database/sql"

	"github.com/decamp/decamp/internal/fault"
)

// dialect has the differences between the two databases. All other SQL is common: parameters are $1,
// and a list of rows is one JSON array.
type dialect struct {
	// now is the database's clock, in microseconds since 1970.
	now string

	// each makes rows of the JSON array $1; a row's "value" is an element.
	expandArray string

	// reading is how a transaction begins that only reads, and sees one moment.
	reading *sql.TxOptions

	// relax is the first statement of a transaction that may be lost in a power cut; empty if none is
	// needed.
	relaxDurability string

	// found locks the database against others that prepare it, and reports whether it was
	// prepared ever. One that others made is foreign.
	lockAndFind func(context.Context, *sql.Tx) (bool, error)

	// fault classifies an error by the database's error code.
	fault func(error) (faultClass, bool)
}

// failing is the class of a database error.
type faultClass struct {
	kind  fault.Kind
	hint  string
	again bool // the transaction may be repeated at once
}

const postgresAway = "look whether PostgreSQL runs and can be reached; all goes on then"

// foreignError is the error for a database that others made.
func foreignError(why string) error {
	return fault.New(fault.Invalid, "this is no database of a decamp fleet: %s", why).
		WithHint("name an empty database, or a file that is not there yet")
}
