package sqlitedb

import (
	"context"
	"database/sql/driver"
	"errors"
)

// plainConn is what the driver's connections are.
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

// conn is a connection that keeps its statements compiled. As all connections it is used by one
// goroutine at a time.
type conn struct {
	plainConn
	pool connector
	idle map[string]driver.Stmt // compiled, and not in use
	tx   *tx                    // running transaction; nil if each statement is a transaction
}

// errPrepare is the error of Prepare: statements prepared by the caller would not be durable.
var errPrepare = errors.New("statements are compiled as they are used: call Exec or Query")

func (c *conn) Prepare(string) (driver.Stmt, error) { return nil, errPrepare }

func (c *conn) PrepareContext(context.Context, string) (driver.Stmt, error) { return nil, errPrepare }

// Close closes the statements first: they keep the file open.
func (c *conn) Close() error {
	var errs []error
	for _, s := range c.idle {
		errs = append(errs, s.Close())
	}
	clear(c.idle)
	return errors.Join(append(errs, c.plainConn.Close())...)
}

// ExecContext is part of driver.ExecerContext.
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

// QueryContext is part of driver.QueryerContext. What a query writes is written when its rows
// are closed.
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

// rows hand their statement back.
type rows struct {
	driver.Rows
	done func(error) error // ends the statement; nil once it was called
}

func (r *rows) Close() error {
	err := r.Rows.Close()
	if r.done == nil {
		return err
	}
	done := r.done
	r.done = nil
	return done(err)
}

// beginStatement begins a statement. done ends it, and returns its result: a statement that writes and is a
// separate transaction waits in line first, and for the disk afterwards.
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

// syncIfDurable returns once the committed data is as durable as the pool promises.
func (c *conn) syncIfDurable() error {
	if !c.pool.durable {
		return nil
	}
	return c.pool.file.syncer.waitSynced()
}
