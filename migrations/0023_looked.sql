-- Through which number a chain's connected blocks were looked at once more before they count as final, where hashes cover no parent:
-- NULL where nothing says so, and then through what counts as final.

ALTER TABLE cursors ADD COLUMN looked_number BIGINT;
UPDATE cursors SET looked_number = (SELECT MIN(from_number) - 1 FROM native_settings
    WHERE native_settings.chain = cursors.chain AND from_number > 0)
    WHERE final_number IS NULL;
