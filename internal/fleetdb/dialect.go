package fleetdb

import (
	"context"
	"database/sql"

	"github.com/decamp/decamp/internal/fault"
)

// dialect contains the differences between SQLite and PostgreSQL. All other SQL is common: parameters
// are $1, and a list of rows is one JSON array.
type dialect struct {
	// now is the SQL expression for the database's clock, in microseconds since 1970.
	now string

	// expandArray is the SQL expression for the rows of the JSON array $1; a row's "value" is an element.
	expandArray string

	// reading are the options of a transaction that only reads, and sees one consistent state.
	reading *sql.TxOptions

	// relaxDurability is the first statement of a transaction that may be lost in a power cut; empty if
	// none is needed.
	relaxDurability string

	// lockAndFind locks the database against other processes that prepare it, and reports whether it was
	// prepared before. A database of another program is an error.
	lockAndFind func(context.Context, *sql.Tx) (bool, error)

	// fault classifies an error by the database's error code; false if it has none that is known.
	fault func(error) (faultClass, bool)
}

// faultClass is the class of a database error.
type faultClass struct {
	kind  fault.Kind // kind of the fault
	hint  string     // remedy; "" if the kind is enough. For fault.Corrupt it contains %s for the file
	again bool       // the transaction may be repeated at once
}

// postgresAway is the remedy if PostgreSQL cannot be reached.
const postgresAway = "check that PostgreSQL is running and reachable; the fleet continues then"

// foreignError returns the error for a database of another program.
func foreignError(why string) error {
	return fault.New(fault.Invalid, "this is no database of a decamp fleet: %s", why).
		WithHint("name an empty database, or a file that is not there yet")
}
