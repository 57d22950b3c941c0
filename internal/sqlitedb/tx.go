package sqlitedb

import (
	"context"
	"database/sql/driver"
)

// A tx is a transaction. Unless it is read-only, it holds its place in the queue until it ends.
type tx struct {
	driver.Tx
	c     *conn  // connection of the transaction
	leave func() // leaves the queue of writers
	wrote bool   // a statement that may write was executed
}

// BeginTx implements driver.ConnBeginTx.
func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	leave := func() {}
	if !o.ReadOnly {
		var err error
		if leave, err = c.pool.file.queue.enter(ctx); err != nil {
			return nil, err
		}
	}
	plain, err := c.plainConn.BeginTx(ctx, o)
	if err != nil {
		leave()
		return nil, err
	}
	c.tx = &tx{Tx: plain, c: c, leave: leave}
	return c.tx, nil
}

// Commit returns when the data is as durable as the pool requires.
func (t *tx) Commit() error {
	err := t.Tx.Commit()
	t.endTx()
	if err != nil || !t.wrote {
		return err
	}
	return t.c.syncIfDurable()
}

// Rollback implements driver.Tx.
func (t *tx) Rollback() error {
	defer t.endTx()
	return t.Tx.Rollback()
}

// endTx leaves the queue and makes the connection available for other statements.
func (t *tx) endTx() {
	t.c.tx = nil
	t.leave()
}
