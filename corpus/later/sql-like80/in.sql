SELECT char(448) LIKE '%' || char(128);
SELECT char(128) LIKE '%' || char(128);
