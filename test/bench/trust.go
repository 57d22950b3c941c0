package main

import (
	"context"
	"errors"
)

// trustChecks lists the measurements of the cost and the completeness of decamp's
// safety checks.
var trustChecks = []func(context.Context, *bench) error{
	unclassifiedFields,
	secretsFound,
	foreignFiles,
	bombFigures,
	rereadShare,
	memoryFigures,
}

// trustFigures runs all of them. One that fails does not prevent the others.
func trustFigures(ctx context.Context, b *bench) error {
	var failed []error
	for _, check := range trustChecks {
		failed = append(failed, check(ctx, b))
	}
	return errors.Join(failed...)
}
