package fleetdb

import (
	"context"
	"database/sql"

	"github.com/decamp/decamp/internal/fault"
)

// dialect is where the two databases differ. All else is said in words that both know:
// parameters are $1, a list of rows is one JSON array.
type dialect struct {
	// now is the database's clock, in microseconds since 1970.
	now string

	// each makes rows of the JSON array $1; a row's "value" is an element.
	each string

	// reading is how a transaction begins that only reads, and sees one moment.
	reading *sql.TxOptions

	// relax is said first in a transaction that may be lost with the power; "" is none.
	relax string

	// found locks the database against others that prepare it, and reports whether it was
	// prepared ever. One that others made is foreign.
	found func(context.Context, *sql.Tx) (bool, error)

	// fault tells what is wrong, by the database's own numbers.
	fault func(error) (failing, bool)
}

// failing is what is known of an error of the database.
type failing struct {
	kind  fault.Kind
	hint  string
	again bool // what was not committed may be tried again at once
}

const postgresAway = "look whether PostgreSQL runs and can be reached; all goes on then"

// foreign is the error for a database that others made.
func foreign(why string) error {
	return fault.New(fault.Invalid, "this is no database of a decamp fleet: %s", why).
		WithHint("name an empty database, or a file that is not there yet")
}
