-- How native movements were seen, and from which block on: what a changed setting leaves unread follows from it.

CREATE TABLE native_settings (
    chain TEXT NOT NULL,
    -- The first block that was followed with this setting.
    from_number BIGINT NOT NULL,
    -- 'top_level', 'trace' or 'log_transfer'.
    source TEXT NOT NULL,
    eip7708_from BIGINT,
    PRIMARY KEY (chain, from_number)
);
