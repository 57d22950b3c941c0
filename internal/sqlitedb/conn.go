package sqlitedb

import (
	"context"
	"database/sql/driver"
	"errors"
)

// A plainConn is a connection of the driver.
type plainConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// A conn is a connection that keeps its statements compiled. As database/sql ensures, one goroutine at
// a time uses it.
type conn struct {
	plainConn
	pool connector              // pool with its options
	idle map[string]driver.Stmt // compiled statements that are not in use, by their text
	tx   *tx                    // running transaction; nil if each statement is a transaction
}

// errPrepare is the error of Prepare. Writes of statements that the caller prepared would not be
// durable.
var errPrepare = errors.New("statements are compiled as they are used: call Exec or Query")

// Prepare always fails.
func (c *conn) Prepare(string) (driver.Stmt, error) { return nil, errPrepare }

// PrepareContext always fails.
func (c *conn) PrepareContext(context.Context, string) (driver.Stmt, error) { return nil, errPrepare }

// Close closes the statements and then the connection. Open statements would keep the file open.
func (c *conn) Close() error {
	var errs []error
	for _, s := range c.idle {
		errs = append(errs, s.Close())
	}
	clear(c.idle)
	return errors.Join(append(errs, c.plainConn.Close())...)
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	s, err := c.takeStatement(ctx, query)
	if err != nil {
		return nil, err
	}
	defer c.returnStatement(query, s)
	done, err := c.beginStatement(ctx, query)
	if err != nil {
		return nil, err
	}
	res, err := s.(driver.StmtExecContext).ExecContext(ctx, args)
	if err := done(err); err != nil {
		return nil, err
	}
	return res, nil
}

// QueryContext implements driver.QueryerContext. Data that a query writes is durable when its rows are
// closed.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.takeStatement(ctx, query)
	if err != nil {
		return nil, err
	}
	done, err := c.beginStatement(ctx, query)
	if err != nil {
		c.returnStatement(query, s)
		return nil, err
	}
	r, err := s.(driver.StmtQueryContext).QueryContext(ctx, args)
	if err != nil {
		c.returnStatement(query, s)
		return nil, done(err)
	}
	return &rows{Rows: r, done: func(err error) error { c.returnStatement(query, s); return done(err) }}, nil
}

// A rows returns its statement to the connection when it is closed.
type rows struct {
	driver.Rows
	done func(error) error // ends the statement; nil after it was called
}

// Close ends the statement in the first call.
func (r *rows) Close() error {
	err := r.Rows.Close()
	if r.done == nil {
		return err
	}
	done := r.done
	r.done = nil
	return done(err)
}

// beginStatement begins a statement. The caller must call done with its error; done returns the error
// of the statement. A statement that writes outside a transaction first waits for other writers, and
// then until it is durable.
func (c *conn) beginStatement(ctx context.Context, query string) (done func(error) error, err error) {
	if isReadOnly(query) {
		return func(err error) error { return err }, nil
	}
	if c.tx != nil {
		c.tx.wrote = true
		return func(err error) error { return err }, nil
	}
	leave, err := c.pool.file.queue.enter(ctx)
	return func(err error) error {
		leave()
		if err != nil {
			return err
		}
		return c.syncIfDurable()
	}, err
}

// syncIfDurable returns when the committed data is as durable as the pool requires.
func (c *conn) syncIfDurable() error {
	if !c.pool.durable {
		return nil
	}
	return c.pool.file.syncer.waitSynced()
}
