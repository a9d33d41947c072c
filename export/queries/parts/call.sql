CASE WHEN function GLOB '*_v[0-9][0-9][0-9][0-9]' THEN substr(function, 1, length(function) - 6)
    ELSE IFNULL(function, '?') END
